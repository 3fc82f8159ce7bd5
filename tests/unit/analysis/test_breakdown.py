"""The time account."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flatout.analysis.breakdown import account
from flatout.schema.phase import OUTSIDE_PHASES, STEP_PHASES, Phase
from flatout.schema.run import End, Header, LoaderFacts, Outside, Run, Step

MS = 1_000_000


def step(start_ms=0, *, first=False, without_grad=False, epoch=0, **phases_ms):
    phases = tuple(round(phases_ms.get(phase.value, 0) * MS) for phase in STEP_PHASES)
    return Step(
        start_ns=round(start_ms * MS),
        wall_ns=sum(phases),
        phases_ns=phases,
        first_of_epoch=first,
        forward_without_grad=without_grad,
        epoch=epoch,
    )


def one_after_the_other(*steps, launched_ms=0, **rest):
    placed, now = [], launched_ms * MS + rest.pop("startup_ms", 0) * MS
    for each in steps:
        placed.append(Step(**{name: getattr(each, name) for name in Step._fields} | {"start_ns": now}))
        now += each.wall_ns
    rest.setdefault("end", End(at_ns=now))
    return Run(header=Header(script="train.py", launched_ns=launched_ms * MS), steps=tuple(placed), **rest)


WORKERS = (LoaderFacts(is_training=True, num_workers=2),)


@st.composite
def runs(draw):
    now = launched = draw(st.integers(0, 10**12))
    steps, outside = [], []
    phase_ns = st.integers(0, 10**10) | st.just(0)
    for position in range(draw(st.integers(0, 30))):
        now += draw(st.integers(0, 10**9))
        if draw(st.booleans()):
            stretch = Outside(phase=draw(st.sampled_from(list(Phase))), start_ns=now, wall_ns=draw(phase_ns))
            outside.append(stretch)
            now += stretch.wall_ns
        phases = tuple(draw(phase_ns) for _ in STEP_PHASES)
        steps.append(
            Step(
                start_ns=now,
                wall_ns=sum(phases),
                phases_ns=phases,
                first_of_epoch=position == 0 or draw(st.booleans()),
                forward_without_grad=draw(st.booleans()),
            )
        )
        now += sum(phases)
    return Run(
        header=Header(script="train.py", launched_ns=launched),
        steps=tuple(steps),
        outside=tuple(outside),
        loaders=draw(st.sampled_from([(), WORKERS])),
        samples_per_step=draw(st.sampled_from([None, 32.0])),
        end=End(at_ns=draw(st.sampled_from([0, now, now + 10**9]))),
    )


@given(runs())
@pytest.mark.slow
def test_the_shares_of_the_step_sum_to_one(run):
    breakdown = account(run)
    whole = sum(part.share for part in breakdown.phases)
    assert whole == pytest.approx(1.0, abs=1e-9) or breakdown.mean_ms == 0
    assert sum(part.ms for part in breakdown.phases) == pytest.approx(breakdown.mean_ms, rel=1e-9, abs=1e-9)


@given(runs())
@pytest.mark.slow
def test_the_seconds_sum_to_the_wall_time(run):
    breakdown = account(run)
    steady_s = breakdown.measured * breakdown.mean_ms / 1000
    outside_s = sum(part.s for part in breakdown.outside)
    assert outside_s + breakdown.warmup_s + steady_s == pytest.approx(breakdown.wall_s, rel=1e-9, abs=1e-9)
    assert all(part.s >= 0 for part in breakdown.outside)
    assert all(part.share == pytest.approx(part.s / breakdown.wall_s) for part in breakdown.outside if part.s)


@given(runs())
@pytest.mark.slow
def test_every_phase_is_listed_in_order_and_every_step_counted(run):
    breakdown = account(run)
    assert tuple(part.phase for part in breakdown.phases) == STEP_PHASES
    assert tuple(part.phase for part in breakdown.outside) == OUTSIDE_PHASES
    assert breakdown.measured + breakdown.warmup == len(run.steps)
    assert len(breakdown.step_ms) == breakdown.measured
    assert 0 <= breakdown.loop_s <= breakdown.wall_s + 1e-9


@given(runs())
@pytest.mark.slow
def test_recorded_time_outside_the_steps_is_never_lost(run):
    breakdown = account(run)
    for phase in (Phase.VALIDATION, Phase.CHECKPOINT, Phase.EPOCH_GAP):
        recorded = sum(stretch.wall_ns for stretch in run.outside if stretch.phase is phase) / 1e9
        assert breakdown.outside_s(phase) >= recorded - 1e-9


def test_the_means_are_over_the_steady_steps_only():
    run = one_after_the_other(step(forward=5000), *[step(input=62, forward=38)] * 9, samples_per_step=32.0)
    breakdown = account(run)
    assert (breakdown.warmup, breakdown.measured) == (1, 9)
    assert breakdown.warmup_s == pytest.approx(5.0)
    assert breakdown.share(Phase.INPUT) == pytest.approx(0.62)
    assert breakdown.ms(Phase.FORWARD) == pytest.approx(38)
    assert (breakdown.median_ms, breakdown.mean_ms, breakdown.p95_ms) == pytest.approx((100, 100, 100))
    assert breakdown.samples_per_s == pytest.approx(320)
    assert breakdown.spread == 0
    assert breakdown.step_ms == pytest.approx([100.0] * 9)


def test_the_first_step_is_left_out_even_when_it_is_not_slow():
    assert account(one_after_the_other(*[step(forward=10)] * 4)).warmup == 1


def test_three_steps_are_all_kept():
    assert account(one_after_the_other(*[step(forward=10)] * 3)).measured == 3


def test_a_script_without_a_known_batch_size_has_no_samples_per_second():
    assert account(one_after_the_other(step(forward=10))).samples_per_s is None


def test_start_up_is_the_time_from_the_launch_to_the_first_step():
    run = one_after_the_other(*[step(forward=10)] * 5, launched_ms=700, startup_ms=3000)
    breakdown = account(run)
    assert breakdown.outside_s(Phase.STARTUP) == pytest.approx(3.0)
    assert breakdown.wall_s == pytest.approx(3.05)
    assert breakdown.loop_s == pytest.approx(0.05)


def test_what_was_recorded_before_the_first_step_is_no_start_up():
    sanity_check = Outside(phase=Phase.VALIDATION, start_ns=1000 * MS, wall_ns=500 * MS)
    breakdown = account(one_after_the_other(*[step(forward=10)] * 5, startup_ms=3000, outside=(sanity_check,)))
    assert breakdown.outside_s(Phase.STARTUP) == pytest.approx(2.5)
    assert breakdown.outside_s(Phase.VALIDATION) == pytest.approx(0.5)


def test_what_nothing_explains_is_named_other():
    run = one_after_the_other(*[step(forward=10)] * 5, end=End(at_ns=2050 * MS))
    assert account(run).outside_s(Phase.OTHER) == pytest.approx(2.0)


def test_a_step_phase_recorded_between_the_steps_is_named_other():
    lost = Outside(phase=Phase.HOST, start_ns=50 * MS, wall_ns=10 * MS)
    assert account(one_after_the_other(*[step(forward=10)] * 5, outside=(lost,))).outside_s(Phase.OTHER) > 0.0099


def epochs(loaders):
    restarted = step(input=1010, forward=10, first=True)
    usual = step(input=10, forward=10)
    return account(one_after_the_other(restarted, *[usual] * 4, restarted, *[usual] * 4, loaders=loaders))


def test_the_first_batch_after_the_workers_restart_is_an_epoch_gap():
    breakdown = epochs(WORKERS)
    assert breakdown.outside_s(Phase.EPOCH_GAP) == pytest.approx(1.0)
    assert breakdown.warmup_s == pytest.approx(1.02)
    assert breakdown.ms(Phase.INPUT) == pytest.approx(10)
    assert breakdown.mean_ms == pytest.approx(20)


def test_without_workers_a_slow_first_batch_stays_in_its_step():
    breakdown = epochs((LoaderFacts(is_training=True, num_workers=0), LoaderFacts(num_workers=4)))
    assert breakdown.outside_s(Phase.EPOCH_GAP) == 0
    assert breakdown.mean_ms > 100


def test_epochs_of_one_step_have_nothing_to_compare_with():
    run = one_after_the_other(*[step(input=100, first=True)] * 5, loaders=WORKERS)
    assert account(run).outside_s(Phase.EPOCH_GAP) == 0


def test_a_validation_without_a_loader_is_taken_out_of_its_step():
    usual = step(forward=10, backward=20)
    with_validation = step(forward=910, backward=20, host=100, without_grad=True)
    breakdown = account(one_after_the_other(*[usual] * 5, with_validation, *[usual] * 4))
    assert breakdown.outside_s(Phase.VALIDATION) == pytest.approx(1.0)
    assert breakdown.ms(Phase.FORWARD) == pytest.approx(10)
    assert breakdown.mean_ms == pytest.approx(30)


def test_a_validation_takes_no_more_than_the_step_lasted_longer():
    usual = step(forward=50, backward=50)
    lopsided = step(forward=100, backward=20, without_grad=True)
    breakdown = account(one_after_the_other(*[usual] * 5, lopsided, *[usual] * 4))
    assert breakdown.outside_s(Phase.VALIDATION) == pytest.approx(0.02)


def test_a_validation_that_cost_nothing_changes_nothing():
    usual = step(forward=50)
    assert account(one_after_the_other(*[usual] * 5, step(forward=40, without_grad=True))).mean_ms == pytest.approx(48)


def test_a_teacher_in_every_step_is_no_validation():
    teacher, plain = step(forward=100, without_grad=True), step(forward=50)
    breakdown = account(one_after_the_other(*[plain, teacher] * 5))
    assert breakdown.outside_s(Phase.VALIDATION) == 0


def test_a_run_without_steps_is_all_start_up():
    breakdown = account(Run(header=Header(script="train.py", launched_ns=5), end=End(at_ns=5 + 2_000 * MS)))
    assert breakdown.outside_s(Phase.STARTUP) == pytest.approx(2.0)
    assert (breakdown.measured, breakdown.median_ms, breakdown.samples_per_s) == (0, 0.0, None)
    assert [part.share for part in breakdown.phases] == [0.0] * len(STEP_PHASES)


def test_an_empty_recording_is_an_empty_account():
    breakdown = account(Run(header=Header(script="train.py")))
    assert breakdown.wall_s == 0
    assert breakdown.loop_share(1.0) == 0


@pytest.mark.slow
def test_a_hundred_thousand_steps_are_accounted_for():
    run = one_after_the_other(*[step(input=1, forward=2)] * 100_000)
    assert account(run).measured == 99_999
