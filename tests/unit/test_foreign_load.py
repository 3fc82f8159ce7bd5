"""What other programs use is what is left of the processors' time."""

import os
from types import SimpleNamespace

import psutil

from flatout import foreign_load
from flatout.foreign_load import ForeignLoad


def test_own_time_and_that_of_children_is_not_of_others(monkeypatch):
    busy, own, now = [100.0, 0.0, 0.0, 5.0], [10.0, 0.0], [50.0]
    monkeypatch.setattr(psutil, "cpu_times", lambda: tuple(busy))
    monkeypatch.setattr(psutil, "cpu_count", lambda: 4)
    monkeypatch.setattr(foreign_load.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(
        os, "times", lambda: SimpleNamespace(user=own[0], system=0.0, children_user=own[1], children_system=0.0)
    )
    load = ForeignLoad()
    assert load.share() == 0.0
    now[0], busy[0], own[1] = 60.0, 120.0, 8.0  # 20 s in ten, 8 of them of a child
    assert load.share() == 12 / 10 / 4
    busy[0] = 1000.0
    assert load.share() == 1.0
    busy[0] = 90.0
    assert load.share() == 0.0
