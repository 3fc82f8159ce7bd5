"""The search, on a scripted machine: true speeds, noise, crashes and wrong results are known by construction."""

import math
import random
import re
import time
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.unit.report.specimens import report

from flatout.analysis.judge import compare
from flatout.edits.given_diff import edit_of
from flatout.engine.process.edit_seal import is_trusted
from flatout.engine.process.target import Target
from flatout.engine.trial import search as searching
from flatout.engine.trial.block_results import Failure
from flatout.engine.trial.journal import TrialJournal
from flatout.loader_account import LoaderAccount
from flatout.schema.run import LoaderFacts
from flatout.schema.trial import Candidate, Equality, Equivalence, Pair, Selection, Verdict

LOOKS = (4, 8, 16, 32, 64, 128)
NO_SECOND_PASS = (
    "no second pass over the training data was seen: the gain of compiled-input is that of later passes; the "
    "first pass gains less or nothing, so a training of one pass may not need it"
)
RESETS = [HealthCheck.function_scoped_fixture]  # every search sets the scripted machine anew


class ScriptedBench:
    """Returns pairs drawn around true step times; a fix's factor below 1 makes steps shorter."""

    factors = failures = noise = rng = None  # set by the fixture

    def __init__(self, *_, **__):
        pass

    def _pair(self, base, arm):
        def block(fixes):
            ms = 100.0 * self.rng.lognormvariate(0, self.noise)
            for selection in fixes:
                ms *= self.factors.get(selection.fix, 1.0)
            return ms

        return Pair(block(base), block(arm))

    def arms(self, base, arms, measured, *, alpha, max_s, without=False):
        for arm, each in zip(arms, measured, strict=True):
            if arm[0].fix in self.failures:
                each.failure = self.failures[arm[0].fix]
                return
            other = [one for one in base if one not in arm] if without else [*base, *arm]
            self._measure(base, other, each, alpha)
            if each.decision == "faster" and not without:
                return

    def as_in_a_training(self, block_s):
        return self

    def _measure(self, base, arm, measured, alpha):
        while not measured.decision:
            measured.pairs.append(self._pair(base, arm))
            measured.decision = compare(measured.pairs, alpha=alpha, looks=LOOKS).decision
        measured.hits = {"x: y": 1}

    def side_by_side(self, base, arm, measured, *, looks, decide, max_s, swap=False, epoch_steps=0, skip=0):
        failing = [self.failures[one.fix] for one in arm if one.fix in self.failures]
        if failing:
            measured.failure = failing[0]
            return
        while not measured.decision:
            measured.pairs.append(self._pair(base, arm))
            measured.decision = decide(measured.pairs)
        if arm:
            measured.hits = {"x: y": 1}
        if measured.decision == "enough":
            measured.decision = ""

    def one_after_the_other(self, base, arm, measured, *, decide, max_s, num_pairs, epoch_steps=0):
        self.side_by_side(base, arm, measured, looks=LOOKS, decide=decide, max_s=max_s)


class ScriptedVerifier:
    wrong: frozenset = frozenset()
    steps = 10
    window_s = 0.0
    accounts: tuple = ()

    def __init__(self, *_, **__):
        pass

    def check(self, selections, claimed):
        bad = [one.fix for one in selections if one.fix in self.wrong]
        if claimed is Equivalence.SEMANTIC:
            return Equality(claimed=claimed, equal=False if bad else None, reason="looked at", num_steps=self.steps)
        return Equality(claimed=claimed, equal=not bad, reason=f"{bad[0]} differs" if bad else "")


@pytest.fixture
def scripted(monkeypatch, tmp_path):
    """Return a function that searches among candidates on the scripted machine."""
    monkeypatch.setattr(searching, "Bench", ScriptedBench)
    monkeypatch.setattr(searching, "Verifier", ScriptedVerifier)
    numbers = iter(range(10_000))

    def search(
        names, *, factors=(), failures=(), wrong=(), noise=0.01, switchable=True, seed=1, folder=None, stop=None,
        claimed=Equivalence.BITWISE, classes=None, steps=10, budget_s=1000, step_ms=None, odd=None, offered=None,
    ):  # fmt: skip
        ScriptedBench.factors, ScriptedBench.failures = dict(factors), dict(failures)
        ScriptedBench.noise, ScriptedBench.rng = noise, random.Random(seed)
        ScriptedVerifier.wrong, ScriptedVerifier.steps = frozenset(wrong), steps
        offered = offered or [
            Candidate(
                selection=Selection(name),
                equivalence=(classes or {}).get(name, claimed),
                switchable=switchable,
                **{"ceiling": 2.0, **(odd or {}).get(name, {})},
            )
            for name in names
        ]
        place = folder or tmp_path / str(next(numbers))
        place.mkdir(exist_ok=True)
        journal = TrialJournal(place)
        diagnosis = report()
        loader = LoaderFacts(name="NPZ", is_training=True)
        diagnosis = replace(diagnosis, run=replace(diagnosis.run, loaders=(loader,)))
        if step_ms is not None:
            diagnosis = replace(diagnosis, breakdown=replace(diagnosis.breakdown, median_ms=step_ms))
        found = searching.Search(
            Target("train.py", ("python", "train.py")), place, diagnosis, offered,
            journal=journal, until=time.monotonic() + budget_s, watch=lambda *_: None,
        )  # fmt: skip
        if stop is not None:
            found._queue = found._queue[:stop]
        found.run()
        return found

    return search


def verdicts(found):
    return {trial.candidate.selection.fix: trial.verdict for trial in found.trials}


@pytest.mark.parametrize("switchable", [True, False])
def test_what_is_faster_is_kept_and_what_is_not_is_not(scripted, switchable):
    found = scripted(["same", "fast", "slow"], factors={"fast": 0.7, "slow": 1.3}, switchable=switchable)
    assert verdicts(found)["fast"] is Verdict.KEPT
    assert verdicts(found)["slow"] is Verdict.SLOWER
    assert verdicts(found)["same"] in (Verdict.NOT_FASTER, Verdict.UNDECIDED)
    assert [kept.selection.fix for kept in found.recipe.fixes] == ["fast"]
    assert found.confirmation.speedup == pytest.approx(1 / 0.7, rel=0.02)


def test_gains_multiply_and_each_is_measured_on_top_of_those_before(scripted):
    found = scripted(["a", "b"], factors={"a": 0.8, "b": 0.8})
    assert [kept.selection.fix for kept in found.recipe.fixes] == ["a", "b"]
    assert found.trials[1].base == (Selection("a"),)
    assert found.confirmation.speedup == pytest.approx(1 / 0.64, rel=0.02)


def test_a_faster_fix_that_changes_results_is_refused_with_the_reason(scripted):
    found = scripted(["wrong", "fast"], factors={"wrong": 0.5, "fast": 0.7}, wrong=["wrong"])
    assert verdicts(found) == {"wrong": Verdict.RESULTS_DIFFER, "fast": Verdict.KEPT}
    assert found.trials[0].reason == "wrong differs"


@pytest.mark.parametrize(
    ("account", "verdict"),
    [
        (LoaderAccount("NPZ", "train.py:9", passes=4, changes=3, changed="NPZ.rows"), Verdict.NOT_APPLIED),
        (LoaderAccount("NPZ", "train.py:9", passes=4, reason="its samples are random"), Verdict.NOT_APPLIED),
        (LoaderAccount("NPZ", "train.py:9", passes=4, batches=40, changes=1, changed="NPZ.rows"), Verdict.KEPT),
        (LoaderAccount("NPZ", "train.py:9", passes=1, reason="one pass shows nothing"), Verdict.KEPT),
        (LoaderAccount("Other", "train.py:30", passes=4, reason="validation"), Verdict.KEPT),
    ],
)
def test_what_would_serve_nothing_in_a_training_is_not_kept(scripted, monkeypatch, account, verdict):
    monkeypatch.setattr(ScriptedVerifier, "accounts", (account,))
    found = scripted(["keeps"], factors={"keeps": 0.3})
    assert verdicts(found) == {"keeps": verdict}
    if verdict is Verdict.NOT_APPLIED:
        assert found.trials[0].reason == f"train.py:9: {account.stands_back}"


def test_a_candidate_that_fails_costs_one_trial(scripted):
    failures = {
        "memory": Failure(Verdict.OUT_OF_MEMORY, "out of memory"),
        "crash": Failure(Verdict.CRASHED, "signal 11"),
        "hang": Failure(Verdict.TIMED_OUT, "45 s"),
    }
    found = scripted([*failures, "fast"], factors={"fast": 0.7}, failures=failures)
    assert verdicts(found) == {name: each.verdict for name, each in failures.items()} | {"fast": Verdict.KEPT}


def test_long_steps_and_a_small_budget_try_nothing_and_say_how_much_more_would_do(scripted):
    found = scripted(["a", "b"], factors={"a": 0.5}, budget_s=90, step_ms=2000.0)
    assert found.trials == []
    (note,) = found.notes
    assert re.match(r"the budget ended before 2 more could be tried: \d+ more minutes would do", note)
    assert scripted(["a", "b"], factors={"a": 0.5}, step_ms=2000.0).recipe is not None


def test_without_anything_to_keep_there_is_no_recipe(scripted):
    found = scripted(["same", "slow"], factors={"slow": 1.2})
    assert (found.recipe, found.confirmation) == (None, None)


@given(
    factors=st.dictionaries(st.sampled_from("abcdef"), st.sampled_from([0.5, 0.7, 0.85, 1.0, 1.2]), min_size=2),
    stop=st.integers(0, 5),
    seed=st.integers(0, 100),
)
@settings(max_examples=examples(25), deadline=None, suppress_health_check=RESETS)
def test_an_interrupted_search_goes_on_to_the_same_recipe(scripted, tmp_path_factory, factors, stop, seed):
    names = sorted(factors)
    whole = scripted(names, factors=factors, noise=0.003, seed=seed)
    folder = tmp_path_factory.mktemp("tune")
    scripted(names, factors=factors, noise=0.003, seed=seed + 1, folder=folder, stop=stop)
    resumed = scripted(names, factors=factors, noise=0.003, seed=seed + 2, folder=folder)
    kept = [found.recipe.selections if found.recipe else () for found in (whole, resumed)]
    assert kept[0] == kept[1]


@given(slower=st.lists(st.sampled_from([1.05, 1.1, 1.5]), min_size=1, max_size=5), seed=st.integers(0, 10**6))
@settings(max_examples=examples(40), deadline=None, suppress_health_check=RESETS)
def test_a_slower_fix_is_never_kept(scripted, slower, seed):
    names = [f"fix{number}" for number in range(len(slower))]
    found = scripted(names, factors=dict(zip(names, slower, strict=True)), noise=0.03, seed=seed)
    assert found.recipe is None


@pytest.mark.parametrize("switchable", [True, False])
def test_a_script_that_ends_between_two_looks_loses_no_clear_gain(scripted, switchable, monkeypatch):
    def six_pairs(bench, base, arm, measured, *_):
        measured.pairs += [bench._pair(base, arm) for _ in range(6 - len(measured.pairs))]
        measured.hits = {"x: y": 1}

    def side_by_side(bench, base, arm, measured, *, decide, **given):
        if decide([Pair(1.0, 1.0)] * 12) == "enough":  # the confirmation
            return plain(bench, base, arm, measured, decide=decide, **given)
        return six_pairs(bench, base, arm, measured)

    plain = ScriptedBench.side_by_side
    monkeypatch.setattr(ScriptedBench, "side_by_side", side_by_side)
    monkeypatch.setattr(ScriptedBench, "_measure", six_pairs)
    found = scripted(["same", "fast"], factors={"fast": 0.3}, noise=0.05, switchable=switchable)
    assert verdicts(found)["same"] is not Verdict.KEPT
    assert verdicts(found)["fast"] is Verdict.KEPT
    assert len(found.kept[0].comparison.pairs) == 6


@pytest.mark.parametrize("switchable", [True, False])
def test_timing_a_candidate_leaves_the_time_that_comparing_its_results_takes(scripted, switchable, monkeypatch):
    asked = []
    for way in ("arms", "side_by_side"):
        plain = getattr(ScriptedBench, way)
        monkeypatch.setattr(
            ScriptedBench,
            way,
            lambda *given, plain=plain, **named: asked.append(named["max_s"]) or plain(*given, **named),
        )
    found = scripted(["a"], factors={"a": 0.5}, switchable=switchable)
    window_s = found._verifier.window_s
    assert asked[0] <= 1000 - 30 - 3 * (found._shares._pace.startup_s + 1.5 * window_s)
    assert asked[0] > 800


def test_what_has_nothing_left_to_do_beside_a_kept_fix_is_not_tried(scripted):
    names = ["compiled-input", "loader-workers", "core-split", "gc-control"]
    found = scripted(names, factors={"compiled-input": 0.5, "loader-workers": 0.5}, switchable=False)
    assert verdicts(found) == {"compiled-input": Verdict.KEPT, "gc-control": Verdict.NOT_FASTER}
    assert found.notes == [
        "not tried, because compiled-input leaves nothing to do: loader-workers, core-split",
        NO_SECOND_PASS,
    ]


@pytest.mark.parametrize("switchable", [True, False])
def test_what_stands_back_ends_its_trial_soon_and_says_why(scripted, switchable, monkeypatch):
    def standing_back(bench, base, arm, measured, *given, decide=None, **named):
        measured.stood_back = "samples are drawn at random (Drawn)"
        if decide is None:
            measured.decision = "not applied"
        while not measured.decision:
            measured.pairs.append(Pair(1.0, 1.0))
            measured.decision = decide(measured.pairs)

    monkeypatch.setattr(ScriptedBench, "side_by_side", standing_back)
    monkeypatch.setattr(ScriptedBench, "_measure", standing_back)
    (trial,) = scripted(["idle"], switchable=switchable).trials
    assert (trial.verdict, trial.reason) == (Verdict.NOT_APPLIED, "samples are drawn at random (Drawn)")
    assert len(trial.comparison.pairs if trial.comparison else ()) == (0 if switchable else LOOKS[0])


def test_what_a_finding_called_for_and_was_not_tried_is_told_with_the_reason(scripted):
    odd = {
        "little": {"ceiling": 1.01, "least": 1.02, "reasons": ("IN002",)},
        "uncalled": {"ceiling": 1.01, "least": 1.02},
    }
    found = scripted(["fast", "little", "uncalled"], factors={"fast": 0.9}, odd=odd, switchable=False)
    assert [(each.fix, each.reason) for each in found.untried] == [
        ("little", "on top of what is kept it could give at most 1.01x")
    ]
    short = scripted(["a", "b"], budget_s=90, step_ms=2000.0, odd={"a": {"reasons": ("IN002",)}})
    assert [(each.fix, each.reason) for each in short.untried] == [("a", "the budget ended first")]


def test_a_fix_of_which_another_setting_was_tried_counts_as_tried(scripted):
    found = scripted(["a"], factors={"a": 0.5}, odd={"a": {"reasons": ("IN002",)}})
    found._log.leave(found.trials[0].candidate, "the budget ended first")
    assert found.untried == ()


def test_what_was_kept_before_it_stays(scripted):
    names = ["loader-workers", "compiled-input"]
    found = scripted(names, factors={"compiled-input": 0.5, "loader-workers": 0.5}, switchable=False)
    assert set(verdicts(found).values()) == {Verdict.KEPT}


def test_what_would_have_nothing_left_to_do_takes_no_time_from_a_candidate(scripted, monkeypatch):
    asked = []
    plain = ScriptedBench.side_by_side
    monkeypatch.setattr(
        ScriptedBench, "side_by_side", lambda *given, **named: asked.append(named["max_s"]) or plain(*given, **named)
    )
    scripted(["compiled-input", "loader-workers", "core-split"], switchable=False)
    assert asked[0] > 800 > asked[1]


@pytest.mark.parametrize(
    ("wrong", "steps", "verdict"),
    [((), 10, Verdict.KEPT), (("larger",), 10, Verdict.RESULTS_DIFFER), ((), 0, Verdict.UNDECIDED)],
)
def test_another_training_that_was_asked_for_is_kept_when_it_trains(scripted, wrong, steps, verdict):
    found = scripted(
        ["larger"], factors={"larger": 0.5}, switchable=False, claimed=Equivalence.SEMANTIC, wrong=wrong, steps=steps
    )
    assert verdicts(found) == {"larger": verdict}
    assert (found.recipe is not None) == (verdict is Verdict.KEPT)


@pytest.mark.parametrize("numbers", [True, False], ids=["trains", "a loss is no number"])
def test_on_top_of_another_training_a_fix_is_held_to_its_claim_at_the_script_s_own(scripted, monkeypatch, numbers):
    asked = []

    def check(verifier, selections, claimed):
        asked.append(([one.fix for one in selections], claimed))
        if claimed is Equivalence.SEMANTIC:
            return Equality(claimed=claimed, equal=None if numbers or len(selections) == 1 else False, num_steps=10)
        return Equality(claimed=claimed, equal=True)

    monkeypatch.setattr(ScriptedVerifier, "check", check)
    classes = {"larger": Equivalence.SEMANTIC, "bits": Equivalence.PRECISION}
    found = scripted(["larger", "bits"], factors={"larger": 0.5, "bits": 0.5}, classes=classes, switchable=False)
    assert asked == [
        (["larger"], Equivalence.SEMANTIC),
        (["bits"], Equivalence.PRECISION),
        (["larger", "bits"], Equivalence.SEMANTIC),
    ]
    assert verdicts(found) == {"larger": Verdict.KEPT, "bits": Verdict.KEPT if numbers else Verdict.RESULTS_DIFFER}
    assert found.kept[-1].candidate.equivalence is (Equivalence.PRECISION if numbers else Equivalence.SEMANTIC)


@pytest.mark.parametrize("switchable", [True, False])
def test_what_could_give_little_is_tried_once_the_step_is_short_enough(scripted, switchable):
    """A tenth of the step is half of it when the input is gone, and nothing worth a trial when it is not."""
    few = {"ceiling": 1 / 0.9, "least": 1.9}
    settings = {"switchable": switchable, "factors": {"input": 0.2, "rest": 0.5}, "odd": {"rest": few}}
    assert verdicts(scripted(["input", "rest"], **settings)) == {"input": Verdict.KEPT, "rest": Verdict.KEPT}
    settings["factors"] = {"input": 1.1, "rest": 0.5}
    found = scripted(["input", "rest"], **settings)
    assert "rest" not in verdicts(found)
    assert not any("budget" in note for note in found.notes)


def test_on_top_of_reduced_precision_a_fix_is_kept_as_what_was_shown_of_it(scripted):
    classes = {"bits": Equivalence.PRECISION, "compiled": Equivalence.ROUNDING}
    found = scripted(["bits", "compiled"], factors={"bits": 0.5, "compiled": 0.5}, classes=classes)
    assert [trial.candidate.equivalence for trial in found.kept] == [Equivalence.PRECISION] * 2
    assert [kept.equivalence for kept in found.recipe.fixes] == [Equivalence.PRECISION] * 2


def test_a_gain_that_few_pairs_cannot_confirm_is_confirmed_by_more(scripted):
    kept = [scripted(["a"], factors={"a": 1 / 1.06}, noise=0.05, seed=seed) for seed in range(12)]
    confirmed = [found.confirmation for found in kept if found.recipe is not None]
    assert len(confirmed) >= 8
    assert any(len(each.pairs) > 12 for each in confirmed)


@pytest.mark.parametrize(
    ("name", "epochs", "said"), [("compiled-input", 1, True), ("compiled-input", 2, False), ("a", 1, False)]
)
def test_what_gains_in_later_passes_is_said_where_none_was_seen(scripted, monkeypatch, name, epochs, said):
    of_run = searching.of_later_passes
    steps = tuple(step._replace(epoch=number % epochs) for number, step in enumerate(report().run.steps))
    monkeypatch.setattr(searching, "of_later_passes", lambda run, kept: of_run(replace(run, steps=steps), kept))
    found = scripted([name], factors={name: 0.5})
    assert [fix.selection.fix for fix in found.recipe.fixes] == [name]
    assert found.notes == ([NO_SECOND_PASS] if said else [])


# -------------------------------------------------------------------------------------------------- edits of the source
SOURCE = "".join(f"line_{number} = {number}\n" for number in range(30))


@pytest.fixture
def edits(tmp_path, monkeypatch, scripted):
    """Return a function that searches among edits of one file, each of another line, by their factors."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "train.py").write_text(SOURCE)

    def of_line(name, line):
        after = SOURCE.replace(f"line_{line} = {line}\n", f"{name} = {line}\n")
        return edit_of(name, {"train.py": (SOURCE.encode(), after.encode())}).selection

    def search(lines, factors, *, wrong=None, weakest=None):
        given = {name: of_line(name, line) for name, line in lines.items()}

        def pair(bench, base, arm):
            def block(fixes):
                ms = 100.0 * bench.rng.lognormvariate(0, 0.01)
                return ms * math.prod(factors.get(one.settings["edit"], 1.0) for one in fixes)

            return Pair(block(base), block(arm))

        def check(verifier, selections, claimed):
            asked.append((selections[-1].settings["edit"], claimed))
            bad = (wrong or {}).get(selections[-1].settings["edit"], ())
            return Equality(claimed=claimed, equal=claimed not in bad, reason=f"step 3 differs ({claimed})")

        asked = []
        monkeypatch.setattr(ScriptedBench, "_pair", pair)
        monkeypatch.setattr(ScriptedVerifier, "check", check)
        candidates = [
            Candidate(selection=each, equivalence=Equivalence.BITWISE, weakest=weakest, ceiling=4.0)
            for each in given.values()
        ]
        found = scripted(["unused"], offered=candidates)
        return found, asked

    return search


def labels(found):
    return {trial.candidate.selection.settings["edit"]: trial.verdict for trial in found.trials}


def test_several_edits_are_kept_on_top_of_each_other_and_sealed(edits):
    found, _ = edits({"first": 1, "second": 20, "slow": 10}, {"first": 0.7, "second": 0.8, "slow": 1.3})
    assert labels(found) == {"first": Verdict.KEPT, "second": Verdict.KEPT, "slow": Verdict.SLOWER}
    assert [kept.selection.label for kept in found.recipe.fixes] == ["edit first", "edit second"]
    assert all(is_trusted(kept) and kept.seal for kept in found.recipe.fixes)


def test_an_edit_that_does_not_fit_beside_a_kept_one_is_not_applied_and_says_why(edits):
    found, _ = edits({"first": 1, "same_lines": 2}, {"first": 0.7, "same_lines": 0.5})
    assert labels(found) == {"first": Verdict.KEPT, "same_lines": Verdict.NOT_APPLIED}
    assert found.trials[1].reason == "it changes lines of train.py that edit first has changed"


def test_an_edit_is_held_to_bit_equality_first_and_then_to_what_is_allowed(edits):
    wrong = {"rounds": {Equivalence.BITWISE}, "differs": set(Equivalence)}
    found, asked = edits(
        {"equal": 1, "rounds": 10, "differs": 20}, {"equal": 0.9, "rounds": 0.8, "differs": 0.7}, wrong=wrong,
        weakest=Equivalence.ROUNDING,
    )  # fmt: skip
    assert asked == [
        ("equal", Equivalence.BITWISE),
        ("rounds", Equivalence.BITWISE),
        ("rounds", Equivalence.ROUNDING),
        ("differs", Equivalence.ROUNDING),  # on top of a weaker class no more than that can be shown
    ]
    assert labels(found)["differs"] is Verdict.RESULTS_DIFFER
    assert found.trials[2].reason == "step 3 differs (ROUNDING)"
    assert [kept.equivalence for kept in found.recipe.fixes] == [Equivalence.BITWISE, Equivalence.ROUNDING]
