"""The line that asks for a batch is not a line that makes samples."""

from flatout.rules import example, line
from flatout.rules.facts.sample_stacks import sample_lines
from flatout.rules.in007_repeated_deterministic_work import RULE
from flatout.schema.run import Frame, LoaderFacts, SamplePrefix

LOOP = ("train.py", 28, "train")
NEXT = ("loop.py", 70, "Batches.next")
GETITEM = ("data.py", 9, "Rows.__getitem__")
PREFIX = SamplePrefix(checked=4, deterministic=True, seconds=0.001, sample_bytes=3000)
LOADER = LoaderFacts(
    is_training=True, batch_size=32, num_samples=100, sample_s=0.05, fetches=9, prefix=PREFIX,
    iterated_at=Frame(*LOOP), created_at=Frame("train.py", 10, "main"),
)  # fmt: skip


def kept(*lines):
    return [cost.stack[0] for cost in sample_lines(example(lines=lines).run, LOADER)]


def test_the_loop_over_the_loader_is_left_out_and_the_dataset_stays():
    lines = (line(1.0, LOOP, stage="sample", leaf="torchvision"), line(1.0, GETITEM, LOOP, stage="sample"))
    assert kept(*lines) == [Frame(*GETITEM)]


def test_a_line_that_torch_collates_below_asks_for_batches_even_if_the_loader_was_iterated_elsewhere():
    assert kept(line(1.0, NEXT, stage="sample", leaf="PIL"), line(0.1, NEXT, stage="collate", leaf="torch")) == []


def test_work_that_repeats_inside_a_library_is_placed_where_the_loader_was_made():
    lines = [line(2.0, LOOP, stage="sample", leaf="torchvision")]
    truth = example(step_ms=100, input=60, forward=30, loaders=(LOADER,), lines=lines)
    assert RULE.check(truth.run, truth.breakdown, ()).location == LOADER.created_at
