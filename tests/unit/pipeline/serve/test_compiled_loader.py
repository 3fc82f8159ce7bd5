"""Loaders that are made for one pass, over data sets that cannot be watched for their end."""

import gc
import weakref

import pytest
import torch
from torch.utils.data import DataLoader

from flatout.pipeline.serve.compiled_loader import LoaderCaches


class Note:
    """An object that a sample is."""

    def __init__(self, number):
        self.number = number


def joined(notes):
    return [Note(note.number) for note in notes]


@pytest.mark.parametrize("purpose", ["run", "timing", "verify"])
def test_a_list_walked_by_a_loader_of_each_pass_gives_its_samples(purpose):
    notes, kept = [Note(number) for number in range(40)], LoaderCaches(purpose=purpose)
    for _ in range(3):
        walked = kept.walk(DataLoader(notes, 8, collate_fn=joined), DataLoader.__iter__)
        gc.collect()
        found = [len(batch) for batch in walked]
        assert found == [8] * 5


def test_such_a_loader_is_let_go_with_its_pass():
    kept = LoaderCaches()
    loader = DataLoader([torch.ones(2)] * 20, 4)
    seen = weakref.ref(loader)
    walked = kept.walk(loader, DataLoader.__iter__)
    del loader
    assert len(list(walked)) == 5
    assert seen() is not None
    del walked
    assert seen() is None
