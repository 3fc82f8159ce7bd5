"""What timed executions wrote of fixes: how often they acted, and why they did not."""

import json

import pytest

from flatout.engine.trial.block_results import Measured, pairs_of_turns, step_and_between, take_record
from flatout.schema.trial import Pair

ACCOUNT = {"dataset": "Rows", "place": "train.py:9", "passes": 1, "reason": "Rows has no length"}


def site(*, hits=(), failure="", stood_back="", loaders=()):
    told = {"fix": "compiled-input", "failure": failure, "stood_back": stood_back, "enabled": True}
    return {**told, "hits": dict(hits), "loaders": list(loaders)}


def of_arm(*sites):
    measured = Measured()
    take_record({"kind": "arm", "arm": 0, "decision": "not applied", "sites": sites}, [measured], 0)
    return measured


@pytest.mark.parametrize(
    ("sites", "reason"),
    [
        ((site(stood_back="gradients are sparse"),), "gradients are sparse"),
        ((site(stood_back="a loader is short", loaders=(ACCOUNT,)),), "train.py:9: Rows has no length"),
        ((site(stood_back="gradients are sparse", hits={"SGD.step": 3}.items()),), ""),
        ((site(failure="TypeError: odd", stood_back="gradients are sparse"),), ""),
        ((site(), site(stood_back="the second one")), "the second one"),
        ((site(),), ""),
    ],
)
def test_what_never_acted_says_why(sites, reason):
    assert of_arm(*sites).stood_back == reason


def test_a_failure_comes_before_what_stood_back():
    assert of_arm(site(failure="TypeError: odd", stood_back="gradients are sparse")).reason == "TypeError: odd"


def test_a_fix_that_acts_later_has_not_stood_back(tmp_path):
    (tmp_path / "parts").mkdir()
    part, measured = tmp_path / "parts" / "timing-rank0.jsonl", Measured()

    def write(number, side, **told):
        with part.open("a") as file:
            body = {"kind": "block", "number": number, "ms": 1.0, "side": side, "sites": [site(**told)]}
            file.write(json.dumps(body) + "\n")

    write(0, 0)
    write(1, 1, stood_back="a validation loader is short")
    assert len(pairs_of_turns(tmp_path, measured)) == 1
    assert measured.stood_back == "a validation loader is short"
    write(2, 1, stood_back="a validation loader is short", hits={"DataLoader": 4}.items())
    pairs_of_turns(tmp_path, measured)
    assert (measured.stood_back, measured.reason) == ("", "")


@pytest.mark.parametrize(
    ("pair", "phases", "step", "between"),
    [
        (Pair(100.0, 60.0), [(0, (40.0,)), (1, (40.0,))], 1.0, 3.0),
        (Pair(100.0, 50.0), [(0, (20.0, 20.0)), (1, (10.0, 10.0))], 2.0, 2.0),
        (Pair(100.0, 40.0), [(0, (40.0,)), (1, (40.0,))], 1.0, 50.0),  # nothing is left of it
        (Pair(100.0, 50.0), [(0, (99.9,)), (1, (49.0,))], 2.0, 1.0),  # there was nothing
        (Pair(100.0, 50.0), [], 2.0, 1.0),
        (Pair(100.0, 50.0), [(0, (130.0,)), (1, (60.0,))], 2.0, 1.0),  # longer than the whole: clocks
    ],
)
def test_a_gain_is_shared_out_between_steps_and_what_lies_between_epochs(pair, phases, step, between):
    found = step_and_between(Measured(pairs=[pair] * 4, phases=phases * 4))
    assert (found.step, found.between) == (pytest.approx(step), pytest.approx(between))
