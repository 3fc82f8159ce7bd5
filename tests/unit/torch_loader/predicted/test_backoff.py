"""When nothing is predicted for a while."""

import itertools

from flatout.torch_loader.predicted.backoff import Backoff


def test_misses_in_a_row_end_it_for_a_while_each_time_twice_as_long():
    backoff = Backoff()
    rests = []
    for _ in range(4):
        for _ in range(3):
            assert not backoff.rests()
            backoff.missed()
        rests.append(len([*itertools.takewhile(lambda _: backoff.rests(), itertools.count())]))
    assert rests == [16, 32, 64, 128]


def test_a_hit_forgives_and_many_shorten_the_rest():
    backoff = Backoff()
    for _ in range(10):
        backoff.missed()
        backoff.missed()
        backoff.hit(0.0, 1.0)
        assert not backoff.rests()


def test_batches_that_take_longer_than_here_end_it_for_a_while():
    backoff = Backoff()
    for _ in range(16):
        assert not backoff.rests()
        backoff.hit(1.5, 1.0)
    assert backoff.rests()


def test_batches_that_go_on_to_take_longer_end_it_for_twice_as_long_each_time():
    backoff = Backoff()
    rests = []
    for _ in range(4):
        for _ in range(16):
            backoff.hit(1.5, 1.0)
        rests.append(len([*itertools.takewhile(lambda _: backoff.rests(), itertools.count())]))
    assert rests == [16, 32, 64, 128]
    for _ in range(16):
        backoff.hit(0.5, 1.0)
    for _ in range(16):
        backoff.hit(1.5, 1.0)
    assert len([*itertools.takewhile(lambda _: backoff.rests(), itertools.count())]) == 16
