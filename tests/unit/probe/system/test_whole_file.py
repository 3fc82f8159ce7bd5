"""The record of a whole training: bounded, and its sums are those of the steps."""

import pytest

from flatout.analysis.breakdown import account
from flatout.engine.process.collect import collect_run
from flatout.probe.system.whole_file import MOST_ENTRIES, WholePart
from flatout.schema.phase import STEP_PHASES, Phase
from flatout.schema.plain import to_plain
from flatout.schema.run import End, Header, Outside, Step

MS = 1_000_000


def step(number, wall_ms=10, epoch=0):
    phases = [0] * len(STEP_PHASES)
    phases[STEP_PHASES.index(Phase.INPUT)] = (wall_ms - 4) * MS
    phases[STEP_PHASES.index(Phase.FORWARD)] = 4 * MS
    return Step(number * 10 * MS, wall_ms * MS, tuple(phases), 1, epoch, False, False, (0, 0, 0), ())


def recorded(tmp_path, steps, stretches=()):
    (tmp_path / "parts").mkdir(exist_ok=True)
    part = WholePart(tmp_path / "parts" / "whole-rank0-7.jsonl")
    part.put("header", Header(script="train.py", mode="whole"))
    last = 0
    for one in steps:
        part.step(one)
        last = one.start_ns + one.wall_ns
    for stretch in stretches:
        part.outside(stretch)
    part.put("end", End(reason="script ended", at_ns=last))
    part.close()
    assert part.error == ""
    return collect_run(tmp_path / "parts", "whole")


def test_a_short_training_is_kept_step_by_step(tmp_path):
    steps = [step(number) for number in range(100)]
    run = recorded(tmp_path, steps)
    assert list(run.steps) == steps
    assert (run.steps_each, run.num_steps) == (1, 100)


def test_a_long_one_in_means_of_equally_many_steps(tmp_path):
    number = 5 * MOST_ENTRIES + 7
    run = recorded(tmp_path, (step(i, wall_ms=9 + 2 * (i % 2), epoch=i // 1000) for i in range(number)))
    assert len(run.steps) <= MOST_ENTRIES
    assert run.steps_each == 8
    assert run.num_steps == number
    assert sum(one.wall_ns for one in run.steps) * run.steps_each == pytest.approx(number * 10 * MS, rel=0.001)
    assert all(sum(one.phases_ns) == one.wall_ns for one in run.steps)
    assert [one.epoch for one in run.steps] == sorted(one.epoch for one in run.steps)
    assert run.steps[-1].epoch == (number - 8) // 1000
    assert run.epoch_lengths == (*[1000] * (number // 1000), number % 1000)


def test_its_account_is_that_of_all_steps(tmp_path):
    number = 3 * MOST_ENTRIES
    breakdown = account(recorded(tmp_path, (step(i) for i in range(number))))
    assert breakdown.share(Phase.INPUT) == pytest.approx(0.6)
    assert breakdown.mean_ms == pytest.approx(10.0)
    assert breakdown.wall_s == pytest.approx(number / 100)
    assert breakdown.measured == number - breakdown.warmup * breakdown.steps_each
    assert breakdown.outside_s(Phase.OTHER) == pytest.approx(0.0, abs=0.1)


def test_what_some_steps_do_besides_is_kept_outside_of_them(tmp_path):
    def steps():
        for i in range(2 * MOST_ENTRIES):
            one = step(i, epoch=i // 100)
            if i % 100 == 0:
                yield slower(one, Phase.INPUT, 500, first_of_epoch=True)
            elif i % 50 == 49:
                yield slower(one, Phase.CHECKPOINT, 300)
            elif i % 50 == 30:
                yield slower(one, Phase.HOST, 200, forward_without_grad=True)
            else:
                yield one

    run = recorded(tmp_path, steps())
    assert {one.wall_ns for one in run.steps[1:]} == {10 * MS}
    times = {one.phase: 0 for one in run.outside}
    for one in run.outside:
        times[one.phase] += one.wall_ns
    number = 2 * MOST_ENTRIES
    assert times[Phase.EPOCH_GAP] == (number // 100) * 500 * MS  # but the first: nothing was usual
    assert sum(one.num_batches for one in run.outside if one.phase is Phase.EPOCH_GAP) == number // 100
    assert times[Phase.CHECKPOINT] == sum(i % 50 == 49 for i in range(number)) * 300 * MS
    assert times[Phase.VALIDATION] == sum(i % 50 == 30 for i in range(number)) * 200 * MS


def slower(one, phase, ms, **flags):
    phases = list(one.phases_ns)
    phases[STEP_PHASES.index(phase)] += ms * MS
    return one._replace(phases_ns=tuple(phases), wall_ns=sum(phases), **flags)


def test_a_forward_pass_without_gradients_in_every_step_is_part_of_the_training(tmp_path):
    run = recorded(tmp_path, (step(i)._replace(forward_without_grad=True) for i in range(100)))
    assert all(one.forward_without_grad for one in run.steps)
    assert run.outside == ()


def test_stretches_are_merged_by_phase_and_keep_their_time(tmp_path):
    many = 3 * MOST_ENTRIES
    stretches = (
        Outside(phase=(Phase.VALIDATION, Phase.CHECKPOINT)[i % 2], start_ns=i * MS, wall_ns=MS + i % 2, num_batches=1)
        for i in range(many)
    )
    run = recorded(tmp_path, [step(0), step(1)], stretches)
    assert len(run.outside) <= MOST_ENTRIES
    assert sum(one.wall_ns for one in run.outside) == many * MS + many // 2
    assert sum(one.num_batches for one in run.outside if one.phase == Phase.VALIDATION) == many // 2


def test_it_is_on_disk_while_the_training_runs(tmp_path, monkeypatch):
    monkeypatch.setattr("flatout.probe.system.whole_file._REWRITE_S", 0.0)
    part = WholePart(tmp_path / "whole-rank0-7.jsonl")
    part.put("header", Header(script="train.py", mode="whole"))
    for number in range(50):
        part.step(step(number))
        part.flush()
    run = collect_run(tmp_path, "whole")
    assert run.num_steps == 50
    assert run.end.reason == "killed"
    part.close()


def test_device_times_of_single_steps_are_left_out(tmp_path):
    part = WholePart(tmp_path / "whole-rank0-7.jsonl")
    for number in range(1000):
        part.put_line(f'{{"kind":"device","step":{number},"ns":[1,2,3]}}')
    part.put_many("notes", ["a note"])
    part.close()
    text = part.path.read_text()
    assert "device" not in text
    assert to_plain("a note") in text


def test_a_full_disk_is_remembered_and_never_raised(tmp_path, monkeypatch):
    part = WholePart(tmp_path / "whole-rank0-7.jsonl")
    part.step(step(0))
    monkeypatch.setattr(
        type(part.path), "write_text", lambda *_, **__: (_ for _ in ()).throw(OSError(28, "No space left"))
    )
    part.close()
    assert part.error == "No space left (whole-rank0-7.jsonl)"
