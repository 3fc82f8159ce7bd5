"""The equality ladder on traces made by hand: what passes, what fails, and in which words.

Modules: flatout.analysis.equality_gates, flatout.analysis.invariants.
"""

import math
from dataclasses import replace

import pytest

from flatout.analysis.equality import LIMITS, MOST_LOSSES, fails_in_every_class, judge
from flatout.analysis.traces import Deviation, Interval, Replayed, Trace, TraceRow, read_trace
from flatout.schema.trial import Equivalence

BITWISE, ROUNDING, PRECISION = Equivalence.BITWISE, Equivalence.ROUNDING, Equivalence.PRECISION


def samples(*numbers):
    return "".join(f"{number:016x}" for number in numbers)


def interval(step, *, loss=1.0, prints="0" * 16, rate=0.1, rows=None, loader=0, which=0, number=0, **changes):
    rows = (step * 2, step * 2 + 1) if rows is None else rows
    batch = (loader, which, number or step, len(rows), samples(*rows), "r")
    call = ("Net", 3, 3, 1, len(rows), samples(*rows), "r")
    body = {
        "losses": ((loss - step * 0.01).hex(),),
        "prints": prints,
        "names": ("weight",),
        "update": 1.0,
        "missing": (0,),
        "groups": ({"lr": rate, "momentum": 0.9},),
        "batches": (batch,),
        "calls": (call,),
    }
    return Interval(step=step, **(body | changes))


def deviation(error=0.0, scale=1.0, name="weight"):
    row = TraceRow(name, error, 1 - error**2 / 2, scale, 1.0, error)
    return Deviation(rows=(row,), error=error, cosine=row.cosine, scale=scale)


def replays(error=0.0, scale=1.0, loss=1.0, **changes):
    return {
        step: Replayed(
            step=step,
            gradients=deviation(error, scale),
            updates=deviation(error),
            losses=(loss, 1.0),
            **changes,
        )
        for step in (0, 3, 12)
    }


def trace(role="candidate", steps=20, **changes):
    intervals = tuple(interval(step) for step in range(steps))
    return Trace(**({"role": role, "intervals": intervals, "complete": True, "reason": "steps"} | changes))


BASE, AGAIN = trace("baseline"), trace("again")
NUDGED = trace("nudged", replays=replays(1e-6))


def judged(claimed, candidate, baseline=BASE, again=AGAIN, nudged=NUDGED, reference=None):
    return judge(claimed, baseline, again, nudged, reference, candidate)


def at(step, **changes):
    """Return a candidate that differs in one interval."""
    intervals = list(trace().intervals)
    intervals[step] = replace(intervals[step], **changes)
    return trace(intervals=tuple(intervals), replays=replays())


@pytest.mark.parametrize("claimed", [BITWISE, ROUNDING, PRECISION])
def test_the_same_training_is_equal_in_every_class(claimed):
    equality = judged(claimed, trace(replays=replays()))
    assert equality.equal is True
    assert equality.reason == ""
    assert equality.num_steps == 20
    assert {"samples", "learning rate", "checkpoint"} <= {check.name for check in equality.checks}


@pytest.mark.parametrize("claimed", [Equivalence.STATISTICAL, Equivalence.SEMANTIC])
def test_classes_that_change_the_training_are_not_judged(claimed):
    assert judged(claimed, trace()).equal is None


@pytest.mark.parametrize(
    ("step", "changes", "words"),
    [
        (12, {"groups": ({"lr": 0.0101, "momentum": 0.9},)}, "the learning rate of step 12 is 0.0101, not 0.1"),
        (5, {"groups": ({"lr": 0.1, "momentum": 0.0},)}, "the momentum of step 5 is 0.0, not 0.9"),
        (7, {"update": 0.0}, "step 7 changes no parameter"),
        (9, {"missing": (2,)}, "in step 9 2 parameters have no gradient, not 0"),
        (3, {"optimizer": 1}, "step 3 is made by optimizer 1, not 0"),
        (4, {"changed": ((0, 0, 2),)}, "batch 3 of pass 1 changed after the script had received it"),
        (6, {"clips": (("clip_grad_norm_", 1.0, 0.9, 4),)}, "step 6 clips its gradients 1 times, not 0"),
        (2, {"losses": ("nan",)}, "the loss of step 2 is"),
        (
            8,
            {"calls": (("Net", 2, 3, 1, 2, samples(16, 17), "r"),)},
            "in step 8 2 of the 3 parts of Net are in training",
        ),
    ],
)
@pytest.mark.parametrize("claimed", [BITWISE, ROUNDING, PRECISION])
def test_what_no_class_may_change_is_named_with_its_step(claimed, step, changes, words):
    equality = judged(claimed, at(step, **changes))
    assert equality.equal is False
    assert words in equality.reason


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ((6, 6), "sample 8 of pass 1 over loader 1 is another one that had come before"),
        ((7, 6), "the same samples come in another order"),
        ((6, 999), "sample 8 of pass 1 over loader 1 has other values"),
    ],
)
def test_another_sample_is_named(rows, words):
    intervals = list(trace().intervals)
    intervals[3] = interval(3, rows=rows)
    assert words in judged(PRECISION, trace(intervals=tuple(intervals), replays=replays())).reason


def test_a_sample_that_is_left_out_is_missing():
    rows = [number for number in range(41) if number != 11]
    intervals = tuple(interval(step, rows=rows[2 * step : 2 * step + 2]) for step in range(20))
    assert "sample 12 of pass 1 over loader 1 is missing" in judged(BITWISE, trace(intervals=intervals)).reason


def test_a_shorter_epoch_is_told_by_its_end():
    ended = at(19, ends=((0, 0, 20, "x"),))
    short = at(19, ends=((0, 0, 19, "x"),))
    baseline, again = replace(ended, role="baseline"), replace(ended, role="again")
    assert "has 19 batches, not 20" in judged(BITWISE, short, baseline=baseline, again=again).reason


def test_merged_micro_batches_are_equal_where_rounding_is_allowed():
    half, one = (0.5).hex(), (1.0).hex()

    def call(*rows):
        return ("Net", 3, 3, 1, len(rows), samples(*rows), "r")

    def made(step, **changes):
        return interval(step, batches=(), **changes)

    several = [made(n, losses=(half, half), calls=(call(2 * n), call(2 * n + 1))) for n in range(20)]
    at_once = [made(n, losses=(one,), calls=(call(2 * n, 2 * n + 1),)) for n in range(20)]
    split = trace("baseline", intervals=tuple(several))
    merged = trace(intervals=tuple(at_once), replays=replays())
    again = replace(split, role="again")
    nudged = replace(split, role="nudged", replays=replays(1e-6))
    assert judged(ROUNDING, merged, baseline=split, again=again, nudged=nudged).equal is True
    assert "batches" in judged(BITWISE, merged, baseline=split, again=again).reason


def test_what_a_module_makes_for_another_may_differ_as_its_weights_do():
    def with_states(*states, **changes):
        calls = [("Net", 3, 3, 1, 1, samples(state), "r") for state in states]
        intervals = [interval(step, batches=(), calls=(call,)) for step, call in enumerate(calls)]
        return trace(intervals=tuple(intervals), **changes)

    base, again = with_states(*range(20)), with_states(*range(20))
    moved = with_states(0, 1, *range(100, 118), replays=replays(1e-6))
    fixed = with_states(*range(20), replays=replays(1e-6))
    candidate = with_states(0, 1, *range(200, 218), replays=replays())
    assert judged(ROUNDING, candidate, baseline=base, again=again, nudged=moved).equal is True
    reason = judged(ROUNDING, candidate, baseline=base, again=again, nudged=fixed).reason
    assert "sample 3 of what Net is called with has other values" in reason


def test_one_bit_is_enough_for_bitwise_and_nothing_for_rounding():
    candidate = at(5, prints="1" * 16)
    equality = judged(BITWISE, candidate)
    assert equality.equal is False
    assert equality.reason == "weight differs after step 5"
    assert judged(ROUNDING, candidate).equal is True


def test_a_script_that_is_not_deterministic_is_held_to_its_own_spread():
    again = replace(AGAIN, intervals=tuple(interval(step, prints="2" * 16) for step in range(20)))
    spread = trace("again", replays=replays(1e-6))
    for error, equal in ((3e-6, True), (1e-3, False)):
        equality = judged(BITWISE, trace(replays=replays(error)), again=again, nudged=spread)
        assert equality.deterministic is False
        assert equality.equal is equal


def test_a_script_that_sees_other_samples_each_time_is_not_judged():
    again = replace(AGAIN, intervals=tuple(interval(step, rows=(100 + step, 7)) for step in range(20)))
    equality = judged(BITWISE, trace(replays=replays()), again=again)
    assert equality.equal is None
    assert "does other things each time" in equality.reason


@pytest.mark.parametrize(("claimed", "error", "equal"), [
    (ROUNDING, 5e-5, True), (ROUNDING, 1e-3, False), (PRECISION, 0.05, True), (PRECISION, 0.3, False),
])  # fmt: skip
def test_gradients_are_held_to_the_limit_of_the_class(claimed, error, equal):
    equality = judged(claimed, trace(replays=replays(error)))
    assert equality.equal is equal
    assert equal or "gradient of weight in step 0" in equality.reason


def test_a_tensor_that_is_noise_in_the_baseline_cannot_fail():
    noise = trace("nudged", replays=replays(0.9))
    rows = {step: replace(each, updates=Deviation()) for step, each in replays(0.5).items()}
    checks = judged(ROUNDING, trace(replays=rows), nudged=noise).checks
    assert all(check.passed for check in checks if check.name.startswith("gradients of"))


def test_one_percent_too_much_is_found_under_any_noise_of_reduced_precision():
    equality = judged(PRECISION, trace(replays=replays(0.03, scale=1.01)))
    assert equality.equal is False
    assert "1.0100 times as large" in equality.reason
    further = {step: replace(each, updates=deviation(0.01, 1.01)) for step, each in replays(0.03).items()}
    assert "1.0100 times as far" in judged(PRECISION, trace(replays=further)).reason


def test_a_kink_is_forgiven_in_one_step_of_several_but_not_in_most():
    at_kink = replays(1e-6)
    at_kink[3] = replays(5e-3)[3]
    assert judged(ROUNDING, trace(replays=at_kink)).equal is True
    at_kink[12] = replays(5e-3)[12]
    assert judged(ROUNDING, trace(replays=at_kink)).equal is False
    gross = replays(1e-6) | {3: replays(0.2)[3]}
    assert judged(ROUNDING, trace(replays=gross)).equal is False


def test_an_update_that_cancels_to_nothing_is_measured_against_all_of_them():
    def changed(error):
        rows = (TraceRow("bias", math.inf, 0.0, 0.0, 0.0, error), TraceRow("weight", 0.0, 1.0, 1.0, 1.0, 0.0))
        return {step: replace(each, updates=Deviation(rows=rows)) for step, each in replays().items()}

    assert judged(ROUNDING, trace(replays=changed(1e-9))).equal is True
    assert judged(ROUNDING, trace(replays=changed(1e-2))).equal is False


def test_missing_and_infinite_gradients_are_named():
    lost = {
        step: replace(each, gradients=Deviation(rows=(TraceRow("head.bias", None, 0, 0, 0.1, 0.0),)))
        for step, each in replays().items()
    }
    assert "the gradient of head.bias in step 0 is missing" in judged(PRECISION, trace(replays=lost)).reason
    bad = {step: replace(each, not_finite=("weight",)) for step, each in replays().items()}
    assert "the gradient of weight is not finite in step 0" in judged(PRECISION, trace(replays=bad)).reason


def test_losses_leave_the_band_only_by_several_times_what_a_nudge_does():
    nudged = replace(NUDGED, intervals=tuple(interval(step, loss=1 + 1e-4 * step) for step in range(20)))
    inside = trace(intervals=tuple(interval(step, loss=1 + 2e-4 * step) for step in range(20)), replays=replays())
    outside = trace(intervals=tuple(interval(step, loss=1 + 4e-3 * step) for step in range(20)), replays=replays())
    assert judged(ROUNDING, inside, nudged=nudged).equal is True
    assert "a nudge of the weights does less" in judged(ROUNDING, outside, nudged=nudged).reason


def test_checkpoints_must_keep_types_strides_and_flags():
    held = {"Net.0.weight": ["float32", [2, 3], [3, 1]], "optimizer 0, group 0": {"fused": None}}
    baseline, again = replace(BASE, checkpoint=held), replace(AGAIN, checkpoint=held)
    for change, words in (
        ({"Net.0.weight": ["float16", [2, 3], [3, 1]]}, "Net.0.weight is float16 (2, 3)"),
        ({"optimizer 0, group 0": {"fused": True}}, "fused of optimizer 0, group 0 is True, not None"),
        ({"_orig_mod.weight": ["float32", [1], [1]]}, "a checkpoint has _orig_mod.weight too much"),
    ):
        candidate = replace(trace(), checkpoint=held | change)
        assert words in judged(BITWISE, candidate, baseline=baseline, again=again).reason
    assert judged(BITWISE, replace(trace(), checkpoint=held), baseline=baseline, again=again).equal is True


def test_what_failed_or_made_too_few_steps_is_not_judged():
    failed = trace(steps=10, reason="script failed", error="RuntimeError: out of memory")
    assert judged(BITWISE, failed).equal is None
    assert "out of memory" in judged(BITWISE, failed).reason
    assert judged(BITWISE, trace(steps=1)).equal is None
    assert "9 of 20 steps" in judged(BITWISE, trace(steps=9)).reason
    assert judged(BITWISE, trace(steps=15)).equal is True
    assert judged(BITWISE, trace(steps=15, complete=False)).equal is None  # killed
    assert judged(BITWISE, trace(steps=9, reason="script ended")).equal is False
    assert judged(ROUNDING, trace()).equal is None  # nothing was replayed
    assert judged(ROUNDING, trace(replays=replays()), nudged=None).equal is None


def test_records_are_read_back_with_settings_and_names_where_they_last_changed():
    body = {"kind": "interval", "optimizer": 0, "update": 1.0, "prints": "", "losses": ["0x1.0p+0"]}
    records = [
        {"kind": "flatout", "schema": 1},
        {**body, "step": 0, "groups": [{"lr": 0.1}], "names": ["w"], "batches": [[0, 0, 0, 1, "00", "r"]]},
        {**body, "step": 1},
        {**body, "step": 2, "groups": [{"lr": 0.2}]},
        {"kind": "verified", "fixes": [{"hits": {"a": 1}, "failure": ""}], "second_epoch": True},
        {"kind": "end", "value": {"reason": "steps", "error": ""}},
    ]
    found = read_trace("candidate", records)
    assert [one.groups[0]["lr"] for one in found.intervals] == [0.1, 0.1, 0.2]
    assert {one.names for one in found.intervals} == {("w",)}
    assert found.intervals[0].batches == ((0, 0, 0, 1, "00", "r"),)
    assert found.complete
    assert found.second_epoch
    assert found.reason == "steps"


def test_limits_grow_from_class_to_class():
    ladder = [LIMITS[claimed] for claimed in (BITWISE, ROUNDING, PRECISION)]
    for name in ("loss", "gradient", "scale", "update", "buffer"):
        values = [getattr(limits, name) for limits in ladder]
        assert values == sorted(values)


def test_the_losses_that_were_compared_are_kept_up_to_the_first_that_is_no_number():
    found = judged(Equivalence.BITWISE, at(3, losses=("nan",)))
    assert found.losses == tuple(each.loss for each in BASE.intervals)
    assert found.candidate_losses == found.losses[:3]
    long = trace(steps=MOST_LOSSES + 5)
    assert len(judged(Equivalence.BITWISE, long, baseline=long, again=long).losses) == MOST_LOSSES


@pytest.mark.parametrize(
    ("changed", "fails"),
    [
        ({"rate": 0.2}, True),
        ({"rows": (7, 8)}, True),
        ({"prints": "1" * 16}, False),
        ({"loss": 1.5}, False),
    ],
)
def test_what_fails_bit_equality_by_more_than_bits_fails_in_every_class(changed, fails):
    same = trace("baseline")
    other = replace(same, intervals=(*same.intervals[:5], interval(5, **changed), *same.intervals[6:]))
    found = judge(BITWISE, same, same, None, None, other)
    assert found.equal is False
    assert fails_in_every_class(found) is fails


@pytest.mark.parametrize(
    ("before", "after", "named"),
    [
        ((1, 1), (1, 0), ""),  # a teacher, a validation
        ((1, 0), (1, 1), "step 4 is made on 2 batches"),
        ((1, 1), (1,), "step 4 is made on 1 batches"),
        ((0, 1), (1, 0), "step 4 is made on"),
    ],
)
def test_a_call_that_records_no_gradients_any_more_is_judged_by_what_comes_of_it(before, after, named):
    def made(flags, role="candidate"):
        intervals = list(BASE.intervals)
        calls = [("Net", 3, 3, flag, 2 + n, samples(8, 9), "r") for n, flag in enumerate(flags)]
        intervals[4] = replace(intervals[4], calls=tuple(calls))
        return trace(role, intervals=tuple(intervals))

    base = made(before, "baseline")
    found = judge(BITWISE, base, replace(base, role="again"), None, None, made(after))
    assert found.equal is not bool(named)
    assert named in found.reason
    nudged = replace(base, role="nudged", replays=replays(1e-6))
    candidate = replace(made(after), replays=replays())
    assert judge(ROUNDING, base, replace(base, role="again"), nudged, None, candidate).equal is not bool(named)
    assert judge(PRECISION, base, replace(base, role="again"), nudged, nudged, candidate).equal is False


@pytest.mark.parametrize(
    ("before", "after", "named"),
    [
        ((8, 8), (8,), ""),
        ((8, 9, 8), (8, 9), ""),
        ((8,), (8, 8), ""),
        ((8, 9), (8,), "step 4 is made on 1 batches"),
        ((8, 8), (9,), "other values"),
    ],
)
def test_calls_that_repeat_others_of_their_step_may_go_where_every_bit_is_compared(before, after, named):
    def made(rows, role="candidate"):
        intervals = list(BASE.intervals)
        calls = [("Net", 3, 3, 1, 1, samples(row), "r") for n, row in enumerate(rows)]
        intervals[4] = replace(intervals[4], calls=tuple(calls))
        return trace(role, intervals=tuple(intervals))

    base = made(before, "baseline")
    found = judge(BITWISE, base, replace(base, role="again"), None, None, made(after))
    assert found.equal is not bool(named)
    assert named in found.reason
    nudged = replace(base, role="nudged", replays=replays(1e-6))
    candidate = replace(made(after), replays=replays())
    assert judge(PRECISION, base, replace(base, role="again"), nudged, nudged, candidate).equal is False
