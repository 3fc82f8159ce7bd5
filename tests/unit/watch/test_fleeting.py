"""Data sets that are made anew for each epoch: what is kept of them would serve nothing, so they are left alone."""

import gc

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from flatout.pipeline.serve.compiled_loader import LoaderCaches


class Rows(Dataset):
    def __init__(self, start=0.0):
        self.rows = torch.arange(24.0).reshape(12, 2) + start

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index] * 2


def passes(kept, dataset, number=1, **options):
    """Walk a loader made anew so many times; return what came, and the passes that were the loader's own."""
    own, seen = [], []

    def plainly(loader):
        own.append(loader)
        return DataLoader.__iter__(loader)

    for _ in range(number):
        loader = DataLoader(dataset, batch_size=4, **options)
        seen.append(torch.cat(list(kept.walk(loader, plainly))))
    return seen, len(own)


@pytest.mark.slow
def test_after_two_that_were_gone_after_one_pass_others_of_the_type_are_left_alone():
    hits = []
    kept = LoaderCaches(purpose="timing", hit=lambda: hits.append(1))
    for epoch in range(5):
        before = len(hits)
        dataset = Rows(epoch)
        (seen,), _ = passes(kept, dataset)
        assert torch.equal(seen, 2 * dataset.rows)
        assert (len(hits) > before) is (epoch < 2)
        del dataset
        gc.collect()


@pytest.mark.slow
def test_one_of_them_that_stays_is_kept_from_its_second_pass_on():
    hits = []
    kept = LoaderCaches(hit=lambda: hits.append(1))
    for _ in range(3):
        passes(kept, Rows())
        gc.collect()
    hits.clear()
    stays = Rows(7.0)
    seen, _ = passes(kept, stays, 4, shuffle=False)
    assert all(torch.equal(each, 2 * stays.rows) for each in seen)
    assert len(hits) == 2 * 3  # the second pass filled
    passes(kept, Rows())
    gc.collect()
    passes(kept, stays)
    assert kept._fleeting == {}  # they do not follow one another


def test_loaders_made_anew_over_one_data_set_share_what_is_kept():
    hits = []
    kept = LoaderCaches(hit=lambda: hits.append(1))
    stays = Rows()
    passes(kept, stays, 6)
    gc.collect()
    assert len(hits) == 5 * 3
    assert kept._fleeting == {}


@pytest.mark.slow
def test_what_is_kept_on_disk_serves_the_next_one(tmp_path):
    kept = LoaderCaches(folder=tmp_path)
    for _ in range(4):
        passes(kept, Rows())
        kept.wait()
        gc.collect()
    assert kept._fleeting == {Rows: 4}
    last = Rows()
    passes(kept, last)
    assert kept.of(DataLoader(last, batch_size=4)).served
