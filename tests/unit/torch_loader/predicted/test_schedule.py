"""Which process makes which batch, and from where."""

import pytest

from flatout.torch_loader.predicted.draw_pattern import DrawPattern
from flatout.torch_loader.predicted.schedule import Schedule, size_of

STATE = ("state",)


class Told:
    """Notes what processes are told."""

    count, depth = 2, 3

    def __init__(self):
        self.jobs, self.forgotten = [], 0

    def forget(self):
        self.forgotten += 1

    def give(self, worker, *job):
        room = sum(each[0] == worker for each in self.jobs) < self.depth
        self.jobs += [(worker, *job)] * room
        return room


def pattern(*counts, step=2):
    made = DrawPattern()
    made.stepped((step,), 4)
    for count in counts:
        made.drawn((count,), 4, lambda count=count: (count,))
    return made


def test_batches_of_fixed_draws_go_to_all_processes_each_at_its_distance():
    early = Told()
    schedule = Schedule(early, pattern(10, 10), 5, STATE)
    assert schedule.in_turn
    assert all(schedule.give([1, 2, 3, 4]) for _ in range(4))
    assert [job[:2] for job in early.jobs] == [(1, 5), (0, 6), (1, 7), (0, 8)]
    assert [job[3:] for job in early.jobs] == [(STATE, (0,)), (STATE, (12,)), ("start", (24,)), ("start", (24,))]
    assert schedule.number == 9
    assert early.forgotten == 1


def test_batches_of_varied_draws_are_made_by_one_process_each_from_the_end_of_the_last():
    early = Told()
    schedule = Schedule(early, pattern(10, 13, 17), 5, STATE)
    assert [schedule.give([1, 2, 3, 4]) for _ in range(4)] == [True, True, True, False]
    assert [job[0] for job in early.jobs] == [0, 0, 0]
    assert [job[3:] for job in early.jobs] == [(STATE, (0,)), ("end", (2,)), ("end", (2,))]


def test_a_smaller_batch_draws_in_proportion():
    early = Told()
    schedule = Schedule(early, pattern(8, 8), 0, STATE)
    for index in ([1, 2], [1, 2, 3, 4], [1]):
        schedule.give(index)
    assert [job[4] for job in early.jobs] == [(0,), (5,), (15,)]


@pytest.mark.parametrize(("index", "size"), [([1, 2], 2), (3, 1), ("name", 1), ((), 0)])
def test_the_size_of_a_batch_is_that_of_its_index(index, size):
    assert size_of(index) == size
