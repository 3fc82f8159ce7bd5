"""`flatout_step_time`: the baseline it keeps, what fails, what is skipped and why; and that pytest finds it."""

import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from flatout.errors import NothingMeasured
from flatout.inside.pytest_plugin import StepTime, _folder_name
from flatout.schema.codec import read_run, write_run

DATA = TensorDataset(torch.randn(96, 4), torch.randn(96, 1))
LIMIT = 9.0  # ten times as slow: no load on the machine does that to all of a few recordings


def train(loader=None):
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for x, y in loader or DataLoader(DATA, batch_size=4):
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()


@pytest.fixture
def step_time(tmp_path):
    """Return a function that does what a test with the fixture does, in a run of pytest of its own each time."""
    numbers = iter(range(100))

    def check(update=False, what=train, **options):
        measure = StepTime(tmp_path / "kept", tmp_path / f"now-{next(numbers)}", update=update)
        return measure(what, **{"limit": LIMIT, "repeats": 3, **options})

    return check


@pytest.fixture
def baseline(step_time, tmp_path):
    """Return the recordings of a baseline that was just made."""
    with pytest.raises(pytest.skip.Exception, match="the baseline was recorded"):
        step_time()
    return sorted((tmp_path / "kept" / "steps").iterdir())


def rewrite(files, change):
    for file in files:
        write_run(change(read_run(file)), file)


def faster(run):
    """Return a recording whose steps took a thousandth of the time."""
    parts = [tuple(part // 1000 for part in step.phases_ns) for step in run.steps]
    steps = [step._replace(wall_ns=sum(part), phases_ns=part) for step, part in zip(run.steps, parts, strict=True)]
    return replace(run, steps=tuple(steps))


@pytest.mark.slow
def test_the_first_run_keeps_a_baseline_and_the_next_is_held_to_it(step_time, baseline):
    assert [file.name for file in baseline] == ["1.jsonl", "2.jsonl", "3.jsonl"]
    found = step_time()
    assert (found.num_before, found.num_after) == (3, 3)
    assert found.ratio < 1 + LIMIT


@pytest.mark.slow
def test_a_training_that_became_slower_fails_with_the_page(step_time, baseline):
    rewrite(baseline, faster)
    with pytest.raises(pytest.fail.Exception) as failed:
        step_time()
    assert "B is slower" in failed.value.msg
    assert "Failed, limit 900%" in failed.value.msg


@pytest.mark.slow
def test_a_baseline_can_be_made_anew(step_time, baseline):
    rewrite(baseline, faster)
    assert step_time(update=True, repeats=2).ratio == pytest.approx(1)
    assert [file.exists() for file in baseline] == [True, True, False]
    assert step_time().ratio < 1 + LIMIT


@pytest.mark.slow
def test_a_baseline_of_another_machine_is_skipped(step_time, baseline):
    rewrite(baseline, lambda run: replace(faster(run), environment=replace(run.environment, num_cpus=999)))
    with pytest.raises(pytest.skip.Exception, match=r"of another machine \(cores\)"):
        step_time()


@pytest.mark.slow
def test_noise_that_hides_the_limit_is_skipped(step_time, baseline):
    uneven = iter((1, 3, 0.3))

    def stretched(run):
        factor = next(uneven)
        parts = [tuple(round(part * factor) for part in step.phases_ns) for step in run.steps]
        steps = [step._replace(wall_ns=sum(part), phases_ns=part) for step, part in zip(run.steps, parts, strict=True)]
        return replace(run, steps=tuple(steps))

    rewrite(baseline, stretched)
    with pytest.raises(pytest.skip.Exception, match=r"Undecided, limit 5%"):
        step_time(limit=0.05)


@pytest.mark.slow
def test_several_trainings_of_one_test_have_baselines_of_their_own(step_time, baseline, tmp_path):
    with pytest.raises(pytest.skip.Exception):
        step_time(name="other")
    assert {file.name for file in (tmp_path / "kept").iterdir()} == {"steps", "other"}


def test_what_trains_nothing_is_told(step_time):
    with pytest.raises(NothingMeasured, match="No training step was recorded"):
        step_time(what=int)


@pytest.mark.parametrize("bad", [{"repeats": 0}, {"limit": 0.001}, {"limit": float("nan")}, {"name": "../elsewhere"}])
def test_odd_arguments_are_refused(step_time, bad):
    with pytest.raises(ValueError, match="must be at least"):
        step_time(**bad)


def test_what_trains_for_too_few_steps_is_told(step_time):
    short = DataLoader(TensorDataset(*DATA[:8]), batch_size=4)
    with pytest.raises(NothingMeasured, match="fewer than 8"):
        step_time(what=lambda: train(short))


@pytest.mark.slow
def test_an_empty_baseline_is_recorded_anew(step_time, baseline):
    for file in baseline:
        file.unlink()
    with pytest.raises(pytest.skip.Exception, match="the baseline was recorded"):
        step_time()


def test_tests_of_one_name_have_baselines_of_their_own():
    nodes = ["t.py::test_x", "t.py::TestA::test_x", "t.py::TestB::test_x", "t.py::test_x[a/b]", "t.py::test_x[a.b]"]
    names = [_folder_name(node) for node in nodes]
    assert len(set(names)) == len(names)
    assert names[0] == "test_x"
    assert all("/" not in name and "." not in name for name in names)


@pytest.mark.slow
def test_pytest_finds_the_fixture_and_its_option(tmp_path):
    (tmp_path / "test_speed.py").write_text(
        "def test_it(flatout_step_time, request):\n"
        "    assert request.config.getoption('--flatout-update')\n"
        "    assert flatout_step_time._baseline == request.path.parent / 'flatout-baselines/test_speed/test_it'\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "--flatout-update"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert "1 passed" in done.stdout, done.stdout + done.stderr
