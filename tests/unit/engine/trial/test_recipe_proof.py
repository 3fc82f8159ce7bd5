"""The proof of a recipe: what each fix brings to the whole, and the whole against the untouched script."""

import time
from dataclasses import replace

import pytest
from tests.unit.report.specimens import comparison, ordinary

from flatout.analysis.judge import CONFIRM_LOOKS
from flatout.analysis.whole_gain import Gains
from flatout.engine.process.target import Target
from flatout.engine.trial import recipe_proof
from flatout.engine.trial.recipe_proof import Confirmation, make_recipe
from flatout.schema.facts import LoaderFacts
from flatout.schema.trial import Candidate, Equivalence, Pair, Selection, Trial, Verdict


def trial(name, *, switchable=True, **changes):
    candidate = Candidate(selection=Selection(name), equivalence=Equivalence.BITWISE, switchable=switchable)
    return replace(Trial(number=1, candidate=candidate, verdict=Verdict.KEPT), **changes)


class Bench:
    """Adds pairs as it is told, of which each is as fast as the first of `ratios`."""

    def __init__(self, *ratios, pairs=10**6, noise=0.0):
        self.ratios, self.left, self.calls, self.noise, self.given_s = list(ratios), pairs, [], noise, []

    def _add(self, measured, number, ratio):
        number = min(number, self.left)
        self.left -= number
        measured.pairs += [
            Pair(100.0 * (1 + 0.001 * (at % 3)), 100.0 / ratio * (1 + self.noise * (at % 2))) for at in range(number)
        ]

    def arms(self, base, arms, measured, **named):
        self.calls.append(("arms", base, arms, named))
        for each, ratio in zip(measured, self.ratios, strict=True):
            self._add(each, 8, ratio)

    def side_by_side(self, base, fixes, measured, *, looks, decide, max_s, swap, epoch_steps=0):
        self.calls.append(("side by side", swap))
        self.epoch_steps = epoch_steps
        self.given_s.append(max_s)
        self._add(measured, looks[0], self.ratios[0])

    def one_after_the_other(self, base, fixes, measured, *, decide, max_s, num_pairs, epoch_steps=0):
        self.calls.append(("one after the other", num_pairs))
        self._add(measured, num_pairs, self.ratios[0])


def confirmation(bench, *, together=False, left_s=1000.0, **known):
    return Confirmation(bench, together=together, until=time.monotonic() + left_s, **known)


@pytest.mark.parametrize(
    ("ratios", "left_out"),
    [
        ((0.5, 1.0), ["b"]),  # without b it is as fast
        ((0.5, 0.5), []),
        ((1.0, 1.0), ["a"]),  # two that stand in for each other must not both go
        ((0.5, 0.9999), ["b"]),
        ((0.5, 0.98), []),
    ],
)
def test_a_fix_without_which_the_recipe_is_as_fast_is_left_out(ratios, left_out):
    kept = [trial("a"), trial("b"), trial("c", switchable=False)]
    bench = Bench(*ratios)
    found = confirmation(bench).leave_one_out(kept, whole_s=60)
    assert [each.candidate.selection.fix for each, _ in found] == left_out
    ((_, base, arms, named),) = bench.calls
    assert [each.fix for each in base] == ["a", "b", "c"]
    assert [arm[0].fix for arm in arms] == ["a", "b"]
    assert named["without"]


@pytest.mark.parametrize(
    ("kept", "left_s"),
    [
        ([trial("a")], 1000),
        ([trial("a", switchable=False), trial("b", switchable=False)], 1000),
        ([trial("a"), trial("b")], 62),  # the whole needs 60 of it
    ],
)
def test_there_is_nothing_to_leave_out_of_one_or_no_time_to_try(kept, left_s):
    bench = Bench(1.0, 1.0)
    assert confirmation(bench, left_s=left_s).leave_one_out(kept, whole_s=60) == []
    assert bench.calls == []


def test_the_whole_is_measured_in_two_starts_with_the_sides_swapped():
    bench = Bench(2.0)
    found = confirmation(bench).whole([Selection("a")])
    assert bench.calls == [("side by side", False), ("side by side", True)]
    assert len(found.pairs) == CONFIRM_LOOKS[0]
    assert found.decision == "faster"
    assert found.speedup == pytest.approx(2.0, rel=0.01)


def test_what_is_not_decided_is_looked_at_again_while_there_is_time():
    bench = Bench(1.1, noise=0.2)
    found = confirmation(bench).whole([Selection("a")])
    assert len(bench.calls) == 2 * len(CONFIRM_LOOKS)
    assert (len(found.pairs), found.decision) == (CONFIRM_LOOKS[-1], "undecided")
    bench = Bench(1.1, noise=0.2)
    confirmation(bench, left_s=-1).whole([Selection("a")])
    assert len(bench.calls) == 1


@pytest.mark.parametrize(("start_s", "given_s"), [(0.0, 8.0), (12.0, 12.0), (100.0, 30.0)])
def test_a_start_that_takes_long_has_its_time_though_the_budget_ends(start_s, given_s):
    bench = Bench(2.0)
    confirmation(bench, left_s=1.0, start_s=start_s).whole([Selection("a")])
    assert bench.given_s[0] == given_s


def test_several_processes_are_measured_one_after_the_other():
    bench = Bench(2.0)
    confirmation(bench, together=True).whole([Selection("a")])
    assert {kind for kind, _ in bench.calls} == {"one after the other"}


def test_fewer_than_three_pairs_are_no_proof():
    assert confirmation(Bench(2.0, pairs=2)).whole([Selection("a")]) is None


def test_the_recipe_says_where_and_how_it_was_proven(tmp_path):
    shown = ordinary()
    loaders = (LoaderFacts(is_training=True, name="Rows", num_samples=10), LoaderFacts(name="Test", num_samples=3))
    shown = replace(shown, run=replace(shown.run, loaders=loaders))
    kept = [trial("a", comparison=comparison(speedup=1.5)), trial("b")]
    script = tmp_path / "train.py"
    script.write_text("pass\n")
    target, gains = Target(str(script), ("python", str(script))), Gains(later=2.0)
    made = make_recipe(target, shown, kept, comparison(speedup=2.0), gains)
    assert [(fix.selection.fix, fix.speedup) for fix in made.fixes] == [("a", 1.5), ("b", 1.0)]
    assert (made.proof.speedup, made.proof.num_pairs, made.proof.baseline_ms) == (2.0, 8, 100.0)
    assert (made.proof.torch, made.proof.num_cpus) == ("2.13.0", 2)
    assert made.proof.samples == {"Rows": 10}
    assert made.proof.flatout == recipe_proof.__version__


def once_longer(base, arm, measured, **given):
    measured.pairs = [Pair(100.0, 50.0)] * 8
    measured.first_pairs = [Pair(100.0, 80.0)] * 6
    measured.once_s = [3.0, 1.0, 2.0]


@pytest.mark.parametrize(
    ("fix", "first", "once_s"), [("compiled-input", 1.25, 2.0), ("gc-control", 2.0, 0.0)], ids=["keeps", "acts at once"]
)
def test_the_first_epoch_is_timed_of_what_gains_in_later_ones(monkeypatch, fix, first, once_s):
    bench = Bench(2.0)
    blocks_s = []
    bench.as_in_a_training = lambda block_s: blocks_s.append(block_s) or bench
    monkeypatch.setattr(bench, "side_by_side", once_longer)
    gains = confirmation(bench, epoch_s=1.6).gains([Selection(fix)], later=2.0)
    assert blocks_s in ([], [0.1])  # short enough for some in an epoch of 1.6 s
    assert gains.later == 2.0
    assert gains.first == pytest.approx(first)
    assert gains.once_s == once_s


class EpochBench(Bench):
    """Steps of 40 ms, and of 60 ms a step what lies between epochs, which is 3 times as fast in the candidate."""

    def _add(self, measured, number, ratio):
        measured.pairs += [Pair(100.0, 40.0 / ratio + 20.0)] * number
        measured.phases += [(0, (30.0, 10.0)), (1, (30.0 / ratio, 10.0 / ratio))] * number


def test_what_lies_between_epochs_is_confirmed_by_whole_epochs():
    bench = EpochBench(1.25)
    proof = confirmation(bench, epoch_steps=75)
    found = proof.whole([Selection("a")])
    assert (found.decision, len(found.pairs), bench.epoch_steps) == ("faster", 4, 75)
    assert found.of_epochs and found.speedup == pytest.approx(100 / 52, rel=0.01)
    gains = proof.gains([Selection("gc-control")], later=found.speedup)
    assert (gains.later, gains.between) == (pytest.approx(1.25), pytest.approx(3.0))


def test_of_ranks_the_first_epoch_is_not_known():
    gains = confirmation(Bench(2.0), together=True).gains([Selection("compiled-input")], later=2.0)
    assert gains.first is None
