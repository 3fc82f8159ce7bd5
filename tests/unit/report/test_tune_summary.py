"""What a tune shows: the staircase, what was refused and why, and what to do next."""

import io
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from tests.examples import examples
from tests.unit.report.specimens import (
    comparison,
    dropped_trials,
    equality,
    healthy,
    hostile_tune,
    kept_trials,
    ordinary,
    recipe,
    trial,
    tuned,
    tuned_in_vain,
)

from flatout.report.declined import format_interval, reason
from flatout.report.layout import Look
from flatout.report.text import show, text
from flatout.report.tune_summary import HandoverStair, headline
from flatout.schema.trial import Check, Comparison, Equivalence, Pair, Verdict

UNCUT = ("Recording: ", "Recipe: ", "Train under it: ")


def page(shown, width=80, **options):
    return text(shown, Look(width=width), **options).plain


def words(shown):
    """Return a page as one line, so that a sentence is found wherever it was broken."""
    return " ".join(shown.split())


def printed(shown, *, encoding="utf-8", width=80, **console):
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding, errors="strict", newline="")
    show(shown, Console(file=file, width=width, **console), verbose=True)
    file.flush()
    return raw.getvalue().decode(encoding)


MADE = pytest.mark.parametrize("made", [tuned, tuned_in_vain, hostile_tune])


# --------------------------------------------------------------------------------------------------- where it is shown
@pytest.mark.parametrize("width", [30, 40, 79, 80, 81, 110, 200])
@pytest.mark.parametrize("verbose", [False, True])
@MADE
def test_no_line_is_wider_than_the_terminal(made, width, verbose):
    shown = page(made(), width=width, verbose=verbose)
    assert max(len(line) for line in shown.splitlines() if not line.startswith(UNCUT)) <= width


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1"])
@MADE
def test_a_pipe_of_any_encoding_gets_neither_escapes_nor_spaces_at_line_ends(made, encoding):
    shown = printed(made(), encoding=encoding)
    assert "\x1b" not in shown
    assert shown == "\n".join(line.rstrip() for line in shown.split("\n"))


def test_a_pipe_gets_bars_of_number_signs_and_a_terminal_blocks():
    assert "with reduced precision                 2.4x  #####" in printed(tuned())
    assert "\u2588" in printed(tuned(), force_terminal=True)


def test_without_colour_the_terminal_gets_none(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    shown = printed(tuned(), force_terminal=True, color_system="standard")
    assert "\x1b[3" not in shown


@settings(deadline=None, max_examples=examples(60))
@given(
    width=st.integers(30, 120),
    speedup=st.floats(allow_nan=True, allow_infinity=True),
    low=st.floats(),
    high=st.floats(),
    times=st.tuples(st.floats(), st.floats()),
    warmup_s=st.floats(),
    verdict=st.sampled_from(Verdict),
    name=st.text(max_size=60),
)
def test_no_number_and_no_name_breaks_the_page(width, speedup, low, high, times, warmup_s, verdict, name):
    odd = Comparison(pairs=(Pair(*times),), speedup=speedup, low=low, high=high, decision="")
    tried = trial(name, verdict, comparison=odd, warmup_s=warmup_s)
    whole = replace(ordinary(), trials=(tried,), recipe=recipe(trial(name, comparison=odd)), confirmation=odd)
    for shown in (whole, replace(whole, recipe=None)):
        lines = page(shown, width=width, verbose=True).splitlines()
        assert all(len(line) <= width for line in lines if name.isascii() and not line.startswith(UNCUT))


# -------------------------------------------------------------------------------------------------------- what is kept
def test_each_stair_has_its_gain_its_interval_its_class_and_the_speed_up_so_far():
    lines = page(tuned()).splitlines()
    stairs = [line.split() for line in lines[lines.index(next(x for x in lines if x.startswith("Kept"))) + 1 :][:3]]
    assert stairs == [
        ["loader-workers", "workers=2", "1.44x", "1.40", "to", "1.48", "identical", "1.44x"],
        ["compile", "1.12x", "1.09", "to", "1.15", "other", "rounding", "1.61x"],
        ["bf16-autocast", "1.50x", "1.46", "to", "1.54", "less", "precision", "2.4x"],
    ]


def test_the_headline_tells_equal_results_from_reduced_precision():
    assert headline(tuned()) == (
        "1.61x as fast with the same maths, other rounding; 2.4x as fast with reduced precision. "
        "3 fixes kept, 11 candidates tried."
    )


def test_the_headline_says_the_least_of_an_interval_that_is_wide():
    confirmed = replace(comparison(49.2), low=18.4, high=131.6)
    assert headline(replace(tuned(), confirmation=confirmed)).startswith(
        "1.61x as fast with the same maths, other rounding; at least 18x as fast with reduced precision."
    )
    exact, _, _ = kept_trials()
    only = replace(ordinary(), trials=(exact,), recipe=recipe(exact), confirmation=replace(comparison(9.5), low=2.99))
    assert headline(replace(only, confirmation=replace(only.confirmation, high=30.0))).startswith("At least 2.9x as")
    narrow = replace(comparison(23), low=16.0, high=31.9)
    assert "; 23x as fast with reduced precision." in headline(replace(tuned(), confirmation=narrow))


def test_rounding_is_never_called_identical():
    _, rounding, _ = kept_trials()
    only = replace(ordinary(), trials=(rounding,), recipe=recipe(rounding, speedup=1.12), confirmation=None)
    shown = page(only)
    assert headline(only).startswith("1.12x as fast with the same maths, other rounding.")
    assert "identical" not in shown


def test_identical_results_alone_are_named_so():
    exact, _, _ = kept_trials()
    only = replace(ordinary(), trials=(exact,), recipe=recipe(exact, speedup=1.44), confirmation=comparison(1.44))
    assert headline(only) == "1.44x as fast with identical results. 1 fix kept, 1 candidate tried."


def test_the_totals_go_down_from_the_untouched_script_to_the_weakest_class():
    lines = page(tuned()).splitlines()
    first = lines.index("Time of a step") + 1
    totals = [line.split("  #")[0].split() for line in lines[first : first + 4]]
    assert [" ".join(each) for each in totals] == [
        "as it is 1.00x",
        "with identical results 1.44x",
        "with the same maths, other rounding 1.61x",
        "with reduced precision 2.4x",
    ]
    bars = [line.count("#") for line in lines[first : first + 4]]
    assert bars == sorted(bars, reverse=True)


def test_the_whole_recipe_is_shown_against_the_untouched_script():
    assert (
        "Confirmed: the whole recipe against the untouched script, in fresh processes: 2.4x (2.33 to 2.47, n=12 "
        "pairs); a step took 100 ms, now 41.7 ms."
    ) in words(page(tuned()))


def test_a_recipe_that_was_not_confirmed_is_said_to_be_none():
    found = replace(tuned_in_vain(), confirmation=comparison(1.01, spread=0.05, decision="not faster"))
    shown = words(page(found))
    assert "Nothing is kept" in shown
    assert "Not confirmed: the whole recipe" in shown


def test_a_warm_up_is_told_in_steps_and_in_time_of_this_training():
    # 41 s / (69.4 ms - 69.4 ms / 1.12) per step
    assert (
        "compile pays for its 41.0 s of compilation and warm-up after 5,514 steps (6 min 23 s of this training)."
    ) in words(page(tuned()))


@pytest.mark.parametrize("warmup_s", [0.0, 0.3, float("nan"), float("inf")])
def test_a_warm_up_not_worth_a_word_gets_none(warmup_s):
    exact = replace(kept_trials()[0], warmup_s=warmup_s)
    assert "pays for" not in page(replace(ordinary(), trials=(exact,), recipe=recipe(exact)))


def test_a_script_that_is_not_deterministic_qualifies_the_word_identical():
    exact = replace(kept_trials()[0], equality=equality(deterministic=False))
    shown = words(page(replace(ordinary(), trials=(exact,), recipe=recipe(exact))))
    assert "does not give the same bits twice" in shown
    assert "does not give the same bits twice" not in page(tuned())


def test_another_training_is_called_that():
    larger = replace(
        trial("larger-batch", equivalence=Equivalence.SEMANTIC, comparison=comparison(2.0)),
        equality=equality(equal=None, reason="results were not compared: it is another training"),
    )
    shown = words(page(replace(ordinary(), trials=(larger,), recipe=recipe(larger), confirmation=comparison(2.0))))
    assert "2.0x as fast with another training" in shown
    assert "larger-batch changes the training itself: results were not compared" in shown
    assert "flatout explain larger-batch" in shown
    assert "for as many samples." in shown
    assert "another training" not in page(tuned())


def test_gains_on_top_of_another_training_are_none_of_the_script_s_own():
    gains = [("compiled-input", Equivalence.BITWISE, 4.0), ("larger-batch", Equivalence.SEMANTIC, 2.0)]
    gains.append(("bf16-autocast", Equivalence.PRECISION, 1.5))
    trials = tuple(trial(name, equivalence=each, comparison=comparison(gain)) for name, each, gain in gains)
    shown = words(page(replace(ordinary(), trials=trials, recipe=recipe(*trials), confirmation=comparison(12.0))))
    assert "4.0x as fast with identical results; 12x as fast with another training" in shown
    assert "with identical results 4.0x" in shown
    assert "with another training 12x" in shown
    assert "lower precision 6.0x" not in shown


def test_verbose_shows_how_often_a_fix_acted_and_the_checks_it_passed():
    shown = page(tuned(), verbose=True)
    assert "torch.utils.data:DataLoader.__init__: 2 times" in shown
    assert "gradients equal: 1e-07, limit 1e-05" in shown
    assert "torch.utils.data:DataLoader.__init__" not in page(tuned())


def test_an_interrupted_tune_shows_what_it_kept_and_that_nothing_is_confirmed():
    shown = page(replace(tuned(), recipe=None, confirmation=None))
    assert "Not finished: 3 fixes kept so far, 11 candidates tried" in words(shown)
    assert "bf16-autocast" in shown
    assert "Confirmed" not in shown


# ---------------------------------------------------------------------------------------------------- what is not kept
def test_every_trial_that_was_not_kept_has_its_line_and_its_reason():
    told = {each.verdict: reason(each) for each in dropped_trials()}
    assert told == {
        Verdict.NOT_FASTER: "not faster: 1.00x (0.99 to 1.01, n=16 pairs)",
        Verdict.SLOWER: "slower: 0.81x (0.79 to 0.83, n=8 pairs)",
        Verdict.RESULTS_DIFFER: (
            "refused at 1.90x, results differ: sample order differs: 12 samples of batch 3 in epoch 1 are others"
        ),
        Verdict.NOT_APPLIED: "did not act: none of its places was passed",
        Verdict.OUT_OF_MEMORY: "out of memory: RuntimeError: can't allocate 8 GiB",
        Verdict.CRASHED: "crashed: the interpreter ended with signal 11",
        Verdict.TIMED_OUT: "took too long: no step within 60 s",
        Verdict.UNDECIDED: "undecided, so not kept: 1.04x (0.96 to 1.12, n=32 pairs)",
    }
    shown = words(page(tuned()))
    assert all(f"{each.candidate.selection.label}: {reason(each)}" in shown for each in dropped_trials())


@pytest.mark.parametrize("verdict", Verdict)
def test_a_trial_without_any_detail_has_words_all_the_same(verdict):
    assert not reason(trial(verdict=verdict, comparison=None)).endswith((": ", ":"))


def test_results_that_differ_without_words_are_named_by_the_checks_that_failed():
    failed = equality(
        Check(name="loss", passed=True),
        Check(name="gradients", passed=False, value=0.0312, limit=1e-5, detail="conv1.weight, step 3"),
        equal=False,
    )
    told = reason(trial(verdict=Verdict.RESULTS_DIFFER, equality=failed))
    assert told == "refused, results differ: gradients differs: 0.031, limit 1e-05 (conv1.weight, step 3)"


def test_a_fix_that_passed_its_trial_and_is_not_in_the_recipe_is_listed_as_left_out():
    exact, rounding, _ = kept_trials()
    shown = page(replace(ordinary(), trials=(exact, rounding), recipe=recipe(exact)))
    assert "compile: passed its trial, but is not in the recipe" in shown


def test_a_long_list_is_cut_and_says_how_to_see_all():
    many = tuple(trial("threads", Verdict.CRASHED, settings={"torch": n}, number=n) for n in range(30))
    whole = replace(ordinary(), trials=many)
    assert "+10 more: flatout report .flatout/train/20250102-030405 --verbose" in words(page(whole))
    assert "threads torch=29" in page(whole, verbose=True)
    assert "more: flatout" not in page(whole, verbose=True)


def test_nothing_to_try_is_said_so():
    shown = page(healthy(), handover=HandoverStair())
    assert "Nothing was tried: no fix applies here, or the budget left no time for one." in words(shown)
    assert "Nothing found: healthy." in shown


def test_one_candidate_is_counted_as_one():
    assert headline(replace(ordinary(), trials=dropped_trials()[:1])).startswith("Nothing is kept: the one candidate")


@pytest.mark.parametrize(
    ("low", "high", "shown"),
    [
        (1.396, 1.484, "1.40 to 1.48"),
        (9.0, 12.3, "9.00 to 12"),
        (0.0, float("inf"), "no interval"),
        (float("nan"), 1.0, "no interval"),
    ],
)
def test_intervals_are_shown_as_far_as_they_say_something(low, high, shown):
    assert format_interval(low, high) == shown


# ---------------------------------------------------------------------------------------------------------- what next
def test_the_recipe_and_the_next_command_stand_at_the_end_and_can_be_copied():
    command = ("flatout", "run", "--recipe", "my recipes/long.toml", "train.py", "--name", "a" * 100)
    lines = page(tuned(), width=40, handover=HandoverStair("my recipes/long.toml", command)).splitlines()
    assert lines[-2] == "Recipe: my recipes/long.toml"
    assert lines[-1] == f"Train under it: flatout run --recipe 'my recipes/long.toml' train.py --name {'a' * 100}"


def test_the_findings_are_named_below_the_staircase_and_shown_in_full_when_asked_for():
    short, full = page(tuned()), page(tuned(), verbose=True)
    assert "Found: IN003 slow-sample-line, IN001 loader-starved." in short
    assert "1. IN003" not in short
    assert "1. IN003 slow-sample-line" in full


def test_a_diagnosis_is_shown_as_before():
    assert page(ordinary()).splitlines()[2].startswith("Training waits")


def test_the_words_of_every_class_fit_their_column():
    for each in Equivalence:
        kept = trial(equivalence=each)
        shown = page(replace(ordinary(), trials=(kept,), recipe=recipe(kept, speedup=1.5)))
        assert "1.50x  1.46 to 1.54" in shown
