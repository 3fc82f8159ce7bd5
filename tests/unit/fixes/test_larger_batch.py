"""A larger batch: which loader grows, what becomes of learning rates, and that speed is counted by samples."""

import inspect
from dataclasses import replace

import pytest
import torch
from tests.unit.fixes.training import under
from torch.utils.data import BatchSampler, DataLoader, SequentialSampler, TensorDataset

from flatout.engine.trial.candidates import candidates
from flatout.fixes.larger_batch import FIX, choices
from flatout.fixes.trial.turns import WholeProcess
from flatout.schema.order import TimingOrder
from flatout.schema.phase import STEP_PHASES
from flatout.schema.run import Frame, Header, LoaderFacts, OptimizerFacts, Run, Step
from flatout.schema.trial import Equivalence

PLACE = Frame("/somewhere/train.py", 12, "main")
TRAINING = LoaderFacts(is_training=True, batch_size=32, num_batches=200, created_at=PLACE)
TESTING = LoaderFacts(batch_size=32, num_batches=20, created_at=replace(PLACE, line=13))
ROWS = TensorDataset(torch.arange(64.0))


def a_run(*loaders, optimizers=("SGD",)):
    return Run(
        header=Header(script="train.py"),
        loaders=loaders,
        optimizers=tuple(OptimizerFacts(name=name) for name in optimizers),
    )


def sizes(loader):
    return [len(batch[0]) for batch in loader]


def this_line(offset=0):
    frame = inspect.currentframe().f_back
    return f"{__file__.rpartition('/')[2]}:{frame.f_lineno + offset}"


# -- what is offered ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("optimizers", "rates"),
    [
        (["SGD"], [16.0, 8.0, 4.0, 2.0]),
        (["AdamW"], [4.0, 2.8284, 2.0, 1.4142]),
        (["SGD", "Adam"], [4.0, 2.8284, 2.0, 1.4142]),
        (["LBFGS"], [1.0, 1.0, 1.0, 1.0]),
        ([], [1.0, 1.0, 1.0, 1.0]),
    ],
)
def test_the_learning_rate_grows_by_the_rule_of_the_optimizer(optimizers, rates):
    found = choices(a_run(TRAINING, TESTING, optimizers=optimizers))
    assert [each["factor"] for each in found] == [16, 8, 4, 2]
    assert [each["lr_factor"] for each in found] == rates
    assert {each["loader"] for each in found} == {"train.py:12"}


@pytest.mark.parametrize(
    ("batches", "factors"), [(200, [16, 8, 4, 2]), (79, [4, 2]), (39, [3, 2]), (19, []), (0, [32, 16, 8, 4, 2])]
)
def test_an_epoch_keeps_ten_steps(batches, factors):
    assert [each["factor"] for each in choices(a_run(replace(TRAINING, num_batches=batches)))] == factors


@pytest.mark.parametrize(
    ("batches", "factors"),
    [
        (938, [32, 16, 8, 4, 2]),  # none of them ends in a whole batch
        (312, [24, 12, 8, 4, 2]),  # 32 and 16 do not, three quarters of them do
        (390, [32, 16, 6, 3, 2]),  # three quarters of 32 and 16 do not, either
    ],
)
def test_factors_that_cut_an_epoch_into_whole_batches_are_preferred(batches, factors):
    whole = replace(TRAINING, num_batches=batches, num_samples=32 * batches)
    assert [each["factor"] for each in choices(a_run(whole))] == factors
    ragged = [each["factor"] for each in choices(a_run(replace(whole, num_samples=32 * batches - 1)))]
    assert ragged == [32, 16, 8, 4, 2][5 - len(ragged) :]
    assert [each["factor"] for each in choices(a_run(replace(TRAINING, num_batches=batches)))] == factors


@pytest.mark.parametrize(
    "loaders",
    [
        (),
        (TESTING,),
        (replace(TRAINING, batch_size=0),),
        (replace(TRAINING, created_at=None),),
        (TRAINING, replace(TESTING, created_at=PLACE)),
        (TRAINING, replace(TRAINING, created_at=TESTING.created_at)),
    ],
)
def test_what_cannot_be_told_apart_is_left_alone(loaders):
    assert choices(a_run(*loaders)) == ()


@pytest.mark.parametrize(
    ("asked", "offered"),
    [
        ({}, 0),
        ({"equal": Equivalence.SEMANTIC}, 0),
        ({"also": frozenset({"larger-batch"})}, 4),
        ({"only": frozenset({"larger-batch"})}, 4),
        ({"only": frozenset({"gc-control"})}, 0),
    ],
)
def test_only_whoever_names_it_gets_it(asked, offered):
    from tests.unit.report.specimens import report

    found = candidates(a_run(TRAINING), report().breakdown, (), catalog=[FIX], **asked)
    assert len(found) == offered


# -- what it does -------------------------------------------------------------------------------------------------


def test_the_loader_of_that_line_grows_and_no_other():
    with under("larger-batch", factor=4, lr_factor=1.0, loader=this_line(1)) as process:
        loader = DataLoader(ROWS, batch_size=4, shuffle=True)
        other = DataLoader(ROWS, batch_size=4)
        assert (loader.batch_size, len(loader), sizes(loader)) == (16, 4, [16] * 4)
        assert sizes(other) == [4] * 16
        assert process.site.hits == {"DataLoader": 1}
        assert process.site.step_worth == 4.0


@pytest.mark.parametrize(
    ("args", "named", "size"),
    [((8,), {}, 16), ((), {}, 2), ((), {"batch_size": 3, "drop_last": True}, 6), ((5, True), {}, 10)],
)
def test_however_the_batch_size_is_given(args, named, size):
    with under("larger-batch", factor=2, lr_factor=1.0, loader=this_line(1)):
        assert DataLoader(ROWS, *args, **named).batch_size == size


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adam])
def test_every_learning_rate_grows_once(optimizer):
    one, other = (torch.nn.Parameter(torch.zeros(2)) for _ in range(2))
    with under("larger-batch", factor=4, lr_factor=2.0, loader="nowhere.py:1"):
        made = optimizer([{"params": [one], "lr": 0.5}, {"params": [other]}], lr=0.1)
        made.add_param_group(param_group={"params": [torch.nn.Parameter(torch.zeros(1))]})
        schedule = torch.optim.lr_scheduler.LambdaLR(made, lambda step: 1.0)
        assert [group["lr"] for group in made.param_groups] == [1.0, 0.2, 0.2]
        assert schedule.base_lrs == [1.0, 0.2, 0.2]
        made.load_state_dict(made.state_dict())
        assert [group["lr"] for group in made.param_groups] == [1.0, 0.2, 0.2]
    assert optimizer([one], lr=0.1).param_groups[0]["lr"] == 0.1


def test_a_batch_sampler_of_the_scripts_own_is_left_alone():
    with under("larger-batch", factor=2, lr_factor=1.0, loader=this_line(2)) as process:
        own = BatchSampler(SequentialSampler(ROWS), 8, drop_last=False)
        loader = DataLoader(ROWS, batch_sampler=own)
        assert sizes(loader) == [8] * 8
        assert process.site.hits == {} and process.site.step_worth == 1.0


def test_a_step_counts_for_as_many_as_it_does_the_work_of():
    written = []
    with under("larger-batch", factor=4, lr_factor=1.0, loader=this_line(1)) as process:
        DataLoader(ROWS, batch_size=4)
        block = WholeProcess(TimingOrder(block_s=0.01), process.sites, lambda kind, body: written.append(body))
        phases = (100_000_000, *[0] * (len(STEP_PHASES) - 1))
        for number in range(40):
            if block.step(Step(number * 100_000_000, 100_000_000, phases)):
                break
        block.finish()
    assert written[0]["ms"] == pytest.approx(25.0)
