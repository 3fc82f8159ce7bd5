"""`flatout tune` on real processes: what is kept, what is refused and why, and what an interruption costs."""

import json
import os
import random
import signal
import sys
import time
import tomllib
from pathlib import Path

import pytest

from flatout.engine.process.target import parse_target
from flatout.engine.trial.block_results import Measured
from flatout.engine.trial.pace import Pace
from flatout.engine.trial.timing import Bench
from flatout.schema.trial import Selection, Verdict
from tests.e2e.support import picture, training

pytestmark = pytest.mark.alone
HERE = str(Path(__file__).parent)

DISTRIBUTED = """
import torch.distributed as dist
if __name__ == "__main__":
    dist.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
"""


@pytest.fixture
def tune(flatout):
    """Return a function that tunes `train.py` with some fixes of `trying.py` and returns how it ended and the JSON."""
    flatout.environment |= {"FLATOUT_EXTRA_FIXES": "trying", "PYTHONPATH": HERE, "OMP_NUM_THREADS": "1"}
    flatout.write(training(step_s=0.01))

    def run(*fixes, budget="150s"):
        words = [word for fix in fixes for word in ("--only", fix)]
        process = flatout.start("tune", "--budget", budget, *words, "--json", "report.json", "train.py")
        ended = flatout.wait(process, timeout=300)
        report = flatout.folder / "report.json"
        return ended, json.loads(report.read_text()) if report.exists() else None

    return run


def verdicts(report):
    return {trial["fix"]: trial["verdict"] for trial in report["trials"]}


def test_what_is_faster_is_kept_and_what_ends_badly_costs_one_trial_each(tune, flatout):
    ended, report = tune("t-abort", "t-memory", "t-half", budget="150s")
    assert ended.code == 0, ended.err
    assert verdicts(report) == {"t-abort": "CRASHED", "t-memory": "OUT_OF_MEMORY", "t-half": "KEPT"}
    recipe = tomllib.loads((flatout.folder / "flatout.toml").read_text())
    assert [fix["name"] for fix in recipe["fix"]] == ["t-half"]
    assert report["recipe"]["fixes"][0]["fix"] == "t-half"


@pytest.mark.full
def test_what_does_nothing_is_not_kept_beside_what_is_faster(tune, flatout):
    """Deciding that takes most of the budget."""
    ended, report = tune("t-disk", "t-half", "t-nothing")
    assert ended.code == 0, ended.err
    found = verdicts(report)
    assert found.pop("t-nothing") in ("NOT_FASTER", "UNDECIDED", "SLOWER")
    assert found == {"t-disk": "CRASHED", "t-half": "KEPT"}
    reasons = {trial["fix"]: trial["reason"] for trial in report["trials"]}
    assert "disk" in reasons["t-disk"]
    recipe = tomllib.loads((flatout.folder / "flatout.toml").read_text())
    assert [fix["name"] for fix in recipe["fix"]] == ["t-half"]


def test_a_faster_fix_that_changes_results_is_refused_and_the_user_s_files_are_as_they_were(tune, flatout):
    flatout.write(training(step_s=0.01, each_step="torch.save(model.state_dict(), 'checkpoint.pt')"))
    flatout.write("the user's own", "checkpoint.pt")
    before = picture(flatout.folder)
    ended, report = tune("t-rate")
    assert ended.code == 0, ended.err
    assert verdicts(report) == {"t-rate": "RESULTS_DIFFER"}
    assert "differs after step" in report["trials"][0]["reason"]  # the rate itself is as it was after every step
    assert report["recipe"] is None
    after = {name: what for name, what in picture(flatout.folder).items() if name != "report.json"}
    assert after == before


@pytest.fixture
def timed(flatout, monkeypatch):
    """Return a function that times one fix of `trying.py` by itself, switched inside a process."""
    monkeypatch.setenv("FLATOUT_EXTRA_FIXES", "trying")
    monkeypatch.setenv("PYTHONPATH", HERE)
    monkeypatch.setenv("PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.syspath_prepend(HERE)
    monkeypatch.chdir(flatout.folder)
    from flatout.fixes.core.catalog import fixes

    fixes.cache_clear()

    def time_it(command, fix, pace, *, max_s, **options):
        bench = Bench(parse_target(command), flatout.folder / ".flatout", lambda steps: None, pace, **options)
        measured = Measured()
        bench.arms((), [(Selection(fix),)], [measured], alpha=0.01, max_s=max_s)
        return measured

    yield time_it
    fixes.cache_clear()


@pytest.mark.full
def test_a_candidate_that_hangs_is_ended(timed, flatout):
    flatout.write(training())
    assert timed(["train.py"], "t-hang", Pace(), max_s=60, stall_s=4).failure.verdict is Verdict.TIMED_OUT


@pytest.mark.full
def test_ranks_of_torchrun_are_switched_together_in_one_start(timed, flatout):
    flatout.write(training(before=DISTRIBUTED, step_s=0.02))
    command = ["torchrun", "--standalone", "--nproc-per-node", "2", "train.py"]
    measured = timed(command, "t-half", Pace(step_s=0.02, startup_s=5.0, together=True), max_s=40)
    assert measured.decision == "faster"
    (start,) = (flatout.folder / ".flatout" / "trials").iterdir()
    wrote = [path.read_text() for path in (start / "parts").glob("timing-rank*.jsonl")]
    assert sum('"pair"' in text for text in wrote) == 1  # rank 0 times; torchrun itself and rank 1 write no pairs
    assert sum('"reason":"steps"' in text for text in wrote) == 2


@pytest.mark.full
def test_a_killed_tune_goes_on_where_it_was(tune, flatout):
    words = ["tune", "--budget", "150s", "--only", "t-apart", "--only", "t-memory", "train.py"]
    process = flatout.start(*words)
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline and not list(flatout.folder.glob(".flatout/*/*/trials.jsonl")):
        time.sleep(0.1)
    process.kill()
    process.wait()
    assert flatout.left_behind() == []
    ended = flatout.wait(flatout.start(*words), timeout=300)
    assert ended.code == 0, ended.err
    assert len(list(flatout.folder.glob(".flatout/*/*/tune.json"))) == 1
    recipe = tomllib.loads((flatout.folder / "flatout.toml").read_text())
    assert [fix["name"] for fix in recipe["fix"]] == ["t-apart"]


@pytest.mark.full
def test_ctrl_c_keeps_the_trials_and_says_how_to_go_on(flatout, tune):
    process = flatout.start("tune", "--only", "t-half", "--only", "t-nothing", "train.py")
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline and not list(flatout.folder.glob(".flatout/*/*/tune.json")):
        time.sleep(0.1)
    time.sleep(random.Random(os.getpid()).uniform(0, 4))
    process.send_signal(signal.SIGINT)
    ended = flatout.wait(process)
    assert ended.code == 130
    assert "continues where this one stopped" in " ".join(ended.err.split())
    assert flatout.left_behind() == []
