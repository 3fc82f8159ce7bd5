"""The clock of batches: those that are made otherwise than the script asks count for nothing."""

import pytest
from torch.utils.data import DataLoader

from flatout.probe.core.seams import Seams
from flatout.probe.loader.fetching import FetchWatch
from flatout.probe.system.line_sampler import Doing


@pytest.fixture
def watch():
    seams = Seams()
    watch = FetchWatch(Doing())
    watch.install(seams)
    yield watch
    seams.undo()


@pytest.mark.parametrize(("aside", "counted"), [(False, 4), (True, 0)])
def test_batches_aside_are_drawn_and_not_counted(watch, aside, counted):
    data = [float(i) for i in range(32)]
    watch.aside = aside
    assert len(list(DataLoader(data, batch_size=8))) == 4
    stats = watch.of(data)
    assert (stats.fetches, len(watch.spans)) == (counted, 4)
    assert (stats.total_ns > 0, watch.busy_ns > 0, watch.aside_ns > 0) == (not aside, not aside, aside)
    assert stats.total_ns >= stats.collate_ns
