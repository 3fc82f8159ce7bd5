"""What a timed execution is told, and how one that gave too little is called: it hangs, or its time was over."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from flatout import child
from flatout.engine.process.launch import Outcome
from flatout.engine.process.target import Target
from flatout.engine.trial import timing
from flatout.engine.trial.block_results import Measured
from flatout.engine.trial.execution_watch import trial_failure
from flatout.engine.trial.pace import Pace
from flatout.engine.trial.timing import Bench
from flatout.fixes.core import apply
from flatout.schema.codec import read_order
from flatout.schema.trial import Selection, Verdict


@pytest.fixture
def ended(monkeypatch, tmp_path):
    """Return a function that times one arm whose execution writes its beginning and ends as is said."""

    def time_it(*, stopped_by, grows_until_s, ends_s, step_s):
        def run(self, budget_s, watch):
            part = Path(self.parts) / "timing-rank0.jsonl"
            elapsed = 0.0
            while elapsed < ends_s:
                if elapsed <= grows_until_s:
                    with part.open("a") as file:
                        file.write('{"kind": "begin", "arm": 0}\n')
                watch(5, elapsed)
                elapsed += 1.0
            return Outcome(stopped_by=stopped_by, wall_s=ends_s)

        monkeypatch.setattr(timing.Execution, "run", run)
        measured = Measured()
        bench = Bench(Target("train.py", ("python", "train.py")), tmp_path, lambda steps: None, Pace(step_s=step_s))
        bench.arms((), [(Selection("gc-control"),)], [measured], alpha=0.01, max_s=10)
        return measured

    return time_it


def test_a_script_of_long_steps_whose_time_is_over_does_not_hang(ended):
    measured = ended(stopped_by="budget", grows_until_s=30, ends_s=41, step_s=1.2)
    assert measured.failure is None
    assert (measured.decision, measured.reason) == ("undecided", "the 41 s that were left for it are over")


def test_what_was_silent_when_its_time_was_over_hangs(ended):
    measured = ended(stopped_by="budget", grows_until_s=3, ends_s=41, step_s=0.01)
    assert measured.failure.verdict is Verdict.TIMED_OUT
    assert measured.failure.reason == "no step for 37 s; it was stopped"


@pytest.mark.parametrize(("step_s", "hangs"), [(0.01, True), (2.0, False)])
def test_silence_is_longer_where_steps_are(ended, step_s, hangs):
    measured = ended(stopped_by="", grows_until_s=2, ends_s=60, step_s=step_s)
    assert bool(measured.failure) is hangs


@pytest.mark.parametrize(
    ("ends", "code", "fails"),
    [
        (("steps", "script ended"), 1, False),  # one came to its end, the other was told so
        (("script ended", "script ended"), 3, True),  # the script's own code
        (("steps", "script failed"), 1, True),
        (("steps", ""), 1, True),  # one was killed
    ],
)
def test_a_training_that_ends_while_the_other_stands_still_has_not_crashed(tmp_path, ends, code, fails):
    (tmp_path / "parts").mkdir()
    for rank, reason in enumerate(ends):
        record = f'{{"kind": "end", "value": {{"reason": "{reason}"}}}}\n' if reason else '{"kind": "block"}\n'
        (tmp_path / "parts" / f"timing-rank0-{rank}.jsonl").write_text(record)
    assert bool(trial_failure(Outcome(exit_code=code), tmp_path, 10.0)) is fails


def test_ceilings_that_were_measured_before_one_fails_are_kept(monkeypatch, tmp_path):
    asked = []

    def run(self, budget_s, watch):
        asked.append(budget_s)
        pair = '{"kind": "pair", "arm": 0, "baseline_ms": 9.0, "candidate_ms": 3.0}\n'
        lines = '{"kind": "begin", "arm": 0}\n' + 4 * pair + '{"kind": "arm", "arm": 0, "decision": "faster"}\n'
        (Path(self.parts) / "timing-rank0.jsonl").write_text(lines + '{"kind": "begin", "arm": 1}\n')
        return Outcome(exit_code=1, wall_s=5.0)

    monkeypatch.setattr(timing.Execution, "run", run)
    measured = [Measured(), Measured(), Measured()]
    bench = Bench(Target("train.py", ("python", "train.py")), tmp_path, lambda steps: None, Pace())
    arms = [(Selection("held-batch"),), (Selection("held-samples"),)]
    bench.ceilings(arms, measured, looks=(8, 16), max_s=10, alone_s=1, within_s=25)
    assert [len(each.pairs) for each in measured] == [4, 0, 0]
    assert (measured[0].decision, measured[0].failure) == ("faster", None)
    assert measured[1].failure is not None
    assert asked == [25]


@pytest.mark.parametrize(("as_trained", "purpose"), [(False, "timing"), (True, "run")])
def test_fixes_of_trials_are_told_whether_they_may_show_later_passes_at_once(
    monkeypatch, tmp_path, as_trained, purpose
):
    told = []

    def run(self, budget_s, watch):
        recorder = SimpleNamespace(
            order=read_order(Path(self._order)), probes=SimpleNamespace(seams=None, modules=None), write=None
        )
        child._prepare_timing(recorder)
        return Outcome()

    monkeypatch.setattr(apply, "install_fixes", lambda fixes, seams, modules, purpose: told.append(purpose) or [])
    monkeypatch.setattr(timing.Execution, "run", run)
    target = Target("train.py", ("python", "train.py"))
    bench = Bench(target, tmp_path, lambda steps: None, Pace(), as_trained=as_trained)
    bench.one_after_the_other((), (), Measured(), decide=lambda pairs: "", max_s=1, num_pairs=1)
    assert told == [purpose]
