"""A rank whose recording is complete trains on until the others' are."""

import pytest

from flatout.probe.system import rank_barrier
from flatout.probe.system.rank_barrier import RankBarrier


@pytest.fixture
def ranks(monkeypatch):
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")


@pytest.mark.usefixtures("ranks")
def test_the_first_rank_waits_for_the_last(tmp_path):
    first = RankBarrier(tmp_path, "complete-timed", 0)
    assert not first.may()
    last = RankBarrier(tmp_path, "complete-timed", 1)
    assert first.may() and last.may()


@pytest.mark.usefixtures("ranks")
def test_an_earlier_execution_in_the_same_folder_does_not_count(tmp_path):
    RankBarrier(tmp_path, "complete-timed", 1)
    assert not RankBarrier(tmp_path, "complete-deep", 0).may()


@pytest.mark.usefixtures("ranks")
def test_a_rank_that_never_ends_is_not_waited_for_for_ever(tmp_path, monkeypatch):
    first = RankBarrier(tmp_path, "complete-timed", 0)
    monkeypatch.setattr(rank_barrier, "_LONGEST_S", -1.0)
    assert first.may()


def test_a_process_alone_waits_for_nobody_and_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    assert RankBarrier(tmp_path, "complete-timed", 0).may()
    assert list(tmp_path.iterdir()) == []
