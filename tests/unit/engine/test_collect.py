"""What the parts of several ranks say together."""

import pytest

from flatout.engine.collect import collect_run
from flatout.rules.example import steps_of
from flatout.schema.codec import write_run
from flatout.schema.phase import Phase
from flatout.schema.run import Header, Run


def part(folder, rank, *, epochs, per_step=1):
    """Write the part of a rank that made so many steps of 10 ms in each of its epochs."""
    numbers = [number for number, length in enumerate(epochs) for _ in range(length)]
    steps = steps_of([{Phase.FORWARD: 10.0}] * len(numbers), epoch=numbers, num_batches=per_step)
    run = Run(header=Header(script="train.py", rank=rank, world_size=2), steps=steps)
    write_run(run, folder / f"timed-rank{rank}.jsonl")


@pytest.mark.parametrize(
    ("ranks", "found"),
    [
        pytest.param([{"epochs": [30, 4]}, {"epochs": [40, 1]}], [(30, 0.3), (40, 0.4)], id="one"),
        pytest.param([{"epochs": [9, 30, 4]}, {"epochs": [20, 20, 3]}], [(30, 0.3), (20, 0.2)], id="the last"),
        pytest.param([{"epochs": [30, 4], "per_step": 4}] * 2, [(120, 0.3)] * 2, id="accumulating"),
        pytest.param([{"epochs": [30]}, {"epochs": [30]}], [(0, 0.0)] * 2, id="none as a whole"),
    ],
)
def test_batches_and_seconds_of_a_whole_epoch_are_known_for_each_rank(tmp_path, ranks, found):
    for rank, facts in enumerate(ranks):
        part(tmp_path, rank, **facts)
    said = [(rank.epoch_batches, rank.epoch_s) for rank in collect_run(tmp_path, "timed").ranks]
    assert said == [(batches, pytest.approx(seconds)) for batches, seconds in found]
