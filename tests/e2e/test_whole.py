"""`flatout diagnose --whole`: the training as it is, from start to end, and a record of all of it.

Modules: flatout.engine.whole_training.
"""

import pytest

from flatout.schema.codec import RUN_FILE, read_run
from tests.e2e.support import training

SAVES = 'torch.save(model.state_dict(), "model.pt"); print("epoch of", done, flush=True)'


def whole(flatout, *words):
    ended = flatout("diagnose", "--whole", *words)
    runs = list((flatout.folder / ".flatout").glob(f"*/*/{RUN_FILE}"))
    return ended, read_run(runs[0]) if runs else None


def test_every_step_is_recorded_and_what_the_script_writes_stays(flatout):
    flatout.write(training(each_epoch=SAVES, steps=400))
    ended, run = whole(flatout, "--price", "3.6/h", "train.py")
    assert ended.code == 0, ended.err
    assert run.num_steps == 400
    assert run.header.mode == "whole"
    assert (flatout.folder / "model.pt").exists()
    assert "epoch of 392" in ended.out
    assert "Each step takes" in ended.out
    assert "An epoch of 8 steps takes" in ended.out
    assert run.utilization


@pytest.mark.full
def test_a_script_that_fails_is_told_with_what_was_recorded(flatout):
    flatout.write(training(each_step="if done == 50: raise SystemExit(7)"))
    ended, run = whole(flatout, "train.py")
    assert ended.code == 1
    assert run.num_steps in (49, 50)
    assert "exit code 7 after" in ended.err
    assert "Each step takes" in ended.out


def test_it_is_not_bounded_by_steps(flatout):
    flatout.write(training())
    ended = flatout("diagnose", "--whole", "--steps", "5", "train.py")
    assert ended.code == 2
    assert "leave out --steps" in ended.err
