"""What processes in turns say of ranks: none may have failed, and each look at the pairs has its share of the error."""

import json
import time
from pathlib import Path

import pytest
from tests.unit.report.specimens import ordinary

from flatout.analysis.judge import compare
from flatout.engine.process.launch import Outcome
from flatout.engine.process.target import Target
from flatout.engine.trial import timing
from flatout.engine.tune_ranks import _became, _judged, _Session, _verdict
from flatout.schema.codec import read_order
from flatout.schema.trial import Equality, Equivalence, Pair, Verdict

EQUAL = Equality(claimed=Equivalence.ROUNDING, equal=True)
BLOCKS_MS = (9.0, 8.0)  # of one process, of ranks: 1.13 times as fast, without any scatter


@pytest.fixture
def tuned(monkeypatch, tmp_path):
    """Return a function that times processes in turns, of which one ends as is said, and gives the verdict."""

    def tune(*, failing, side, outcome):
        count = [0, 0]

        def run(self, budget_s, watch):
            ours = read_order(Path(self._order)).timing.side
            count[ours] += 1
            watch(5, 1.0)
            if ours == side and count[ours] == failing:
                watch(5, 1.0 + outcome.quiet_s)
                return outcome
            scatter = 1 + 0.3 * (-1) ** count[ours] * (1 - ours)  # so that four pairs are not enough
            record = {"kind": "block", "number": 0, "side": ours, "ms": BLOCKS_MS[ours] * scatter, "sites": []}
            (Path(self.parts) / "timing-rank0.jsonl").write_text(json.dumps(record) + "\n")
            return Outcome(exit_code=0, wall_s=1.0)

        monkeypatch.setattr(timing.Execution, "run", run)
        one, ranks = Target("train.py", ("python", "train.py")), Target("train.py", ("python", "ranks.py"))
        until = time.monotonic() + 300
        session = _Session(one, ranks, 2, tmp_path, ordinary(), until, 300.0, lambda progress: None)
        comparison, failure = session._comparison()
        return _verdict(EQUAL, comparison, failure), comparison

    return tune


@pytest.mark.parametrize("failing", [1, 2, 6])
@pytest.mark.parametrize(
    ("outcome", "verdict", "reason"),
    [
        (Outcome(exit_code=1, wall_s=1.0), Verdict.CRASHED, "exit code 1"),
        (Outcome(exit_code=-9, wall_s=1.0), Verdict.OUT_OF_MEMORY, "killed"),
        (Outcome(stopped_by="stalled", quiet_s=99.0, wall_s=100.0), Verdict.TIMED_OUT, "no step for"),
    ],
)
def test_ranks_that_fail_are_not_kept_whichever_pair_it_was(tuned, failing, outcome, verdict, reason):
    (found, why), comparison = tuned(failing=failing, side=1, outcome=outcome)
    assert found is verdict and reason in why
    assert len(comparison.pairs if comparison else ()) == failing - 1


def test_ranks_that_stand_still_until_the_budget_ends_hang_as_others_have_shown(tuned):
    hangs = Outcome(stopped_by="budget", quiet_s=55.0, wall_s=60.0)
    (found, why), comparison = tuned(failing=3, side=1, outcome=hangs)
    assert (found, why) == (Verdict.TIMED_OUT, "no step for 55 s; it was stopped")
    assert len(comparison.pairs) == 2


def test_where_the_untouched_script_fails_that_is_said_and_ranks_are_not_blamed(tuned):
    (found, why), _ = tuned(failing=3, side=0, outcome=Outcome(exit_code=7, wall_s=1.0))
    assert found is Verdict.UNDECIDED
    assert why == "the untouched script failed: exit code 7"


def test_pairs_that_the_budget_ends_are_judged(tuned):
    """No process has shown how long the first may take, and a later one has had no time to hang."""
    for number, wall_s in ((1, 200.0), (4, 9.0)):
        (found, why), comparison = tuned(
            failing=number, side=1, outcome=Outcome(stopped_by="budget", quiet_s=8.0, wall_s=wall_s)
        )
        assert len(comparison.pairs if comparison else ()) == number - 1
        assert found is Verdict.UNDECIDED, why


def pairs(*logs):
    from math import exp

    return [Pair(exp(each), 1.0) for each in logs]


def test_a_look_after_others_does_not_spend_their_error_again():
    """Of five pairs, p is between two thirds of 1 %, which are left after the look at four, and 1 %."""
    five = pairs(*(0.1414 + 0.05 * each for each in (-2, -1, 0, 1, 2)))
    assert compare(five, alpha=0.01, looks=(5,)).decision == "faster"
    assert _judged(five).decision == "undecided"


@pytest.mark.parametrize("number", [2, 3, 4, 5, 16])
def test_ranks_that_are_surely_faster_are_kept_by_however_many_pairs(number):
    assert _judged(pairs(*(0.5 + 0.0005 * (-1) ** each for each in range(number)))).decision == "faster"


@pytest.mark.parametrize("text", ["", '{"rank": 0, "mod', "\xff"])
def test_an_account_that_is_cut_off_says_nothing(tmp_path, text):
    (tmp_path / "rank-0.json").write_bytes(text.encode("latin-1"))
    assert _became(tmp_path, "rank-0.json", 2, lambda accounts, size: ["never"]) == []
