"""What the parts of several ranks say together."""

import pytest

from flatout.engine.process.collect import collect_run
from flatout.rules.core.example import steps_of
from flatout.schema.codec import write_run
from flatout.schema.phase import Phase
from flatout.schema.run import End, Header, Run


def part(folder, rank, *, epochs, per_step=1, end=None):
    """Write the part of a rank that made so many steps of 10 ms in each of its epochs."""
    numbers = [number for number, length in enumerate(epochs) for _ in range(length)]
    steps = steps_of([{Phase.FORWARD: 10.0}] * len(numbers), epoch=numbers, num_batches=per_step)
    run = Run(header=Header(script="train.py", rank=rank, world_size=2), steps=steps, end=end or End())
    write_run(run, folder / f"timed-rank{rank}.jsonl")


@pytest.mark.parametrize(
    ("ranks", "found"),
    [
        pytest.param([{"epochs": [30, 4]}, {"epochs": [40, 1]}], [(30, 0.3), (40, 0.4)], id="one"),
        pytest.param([{"epochs": [9, 30, 4]}, {"epochs": [20, 20, 3]}], [(30, 0.3), (20, 0.2)], id="the last"),
        pytest.param([{"epochs": [30, 4], "per_step": 4}] * 2, [(120, 0.3)] * 2, id="accumulating"),
        pytest.param([{"epochs": [30]}, {"epochs": [30]}], [(0, 0.0)] * 2, id="none as a whole"),
    ],
)
def test_batches_and_seconds_of_a_whole_epoch_are_known_for_each_rank(tmp_path, ranks, found):
    for rank, facts in enumerate(ranks):
        part(tmp_path, rank, **facts)
    said = [(rank.epoch_batches, rank.epoch_s) for rank in collect_run(tmp_path, "timed").ranks]
    assert said == [(batches, pytest.approx(seconds)) for batches, seconds in found]


@pytest.mark.parametrize("steps", [0, 5])
@pytest.mark.parametrize(
    ("ends", "said"),
    [
        ([("script failed", "closed", 9), ("script failed", "bad label", 4)], "bad label"),
        ([("killed", "", 9), ("script failed", "bad label", 4)], "bad label"),
        ([("script failed", "bad label", 4), ("script failed", "closed", 9)], "bad label"),
        ([("script ended", "", 3), ("script failed", "closed", 9)], ""),
    ],
)
def test_the_error_is_that_of_the_rank_that_failed_first(tmp_path, ends, said, steps):
    for rank, (reason, error, at_ns) in enumerate(ends):
        part(tmp_path, rank, epochs=[steps], end=End(reason=reason, error=error, at_ns=at_ns))
    found = collect_run(tmp_path, "timed").end
    assert found.error == (said or ("closed" if steps == 0 else ""))
