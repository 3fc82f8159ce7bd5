"""The one place where a pass over a compiled loader begins; and how its workers would be started.

Modules: flatout.torch_loader.worker_start.
"""

import multiprocessing

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from flatout.torch_loader import worker_start
from flatout.torch_loader.pass_start import begin_pass, drawn_from
from flatout.torch_loader.worker_start import computing_on, start_method, starts_anew, threads_of

ROWS = TensorDataset(torch.arange(4))


class Loader:
    def begin_pass(self):
        return "a pass"


class OnDevice:
    _inner = "the iterator behind it"


def test_a_pass_is_the_loaders_own():
    assert begin_pass(Loader()) == "a pass"


def test_the_iterator_of_torchs_kind_is_behind_one_that_brings_batches_to_a_device():
    iterator = iter([1])
    assert drawn_from(iterator) is iterator
    assert drawn_from(OnDevice()) == "the iterator behind it"


def test_workers_have_one_thread_each(two_threads):
    assert threads_of(DataLoader(ROWS)) == 2
    assert threads_of(DataLoader(ROWS, num_workers=2)) == 1


@pytest.mark.parametrize(("method", "anew"), [("fork", False), ("spawn", True), ("forkserver", True)])
def test_how_workers_start_is_asked_of_the_loader(method, anew):
    loader = DataLoader(ROWS, num_workers=1, multiprocessing_context=method)
    assert start_method(loader) == method
    assert starts_anew(loader) is anew


def test_asking_settles_nothing(monkeypatch):
    asked = []

    def get(allow_none=False):
        asked.append(allow_none)

    monkeypatch.setattr(multiprocessing, "get_start_method", get)
    assert start_method(DataLoader(ROWS, num_workers=1)) == multiprocessing.get_all_start_methods()[0]
    assert asked == [True]


def test_the_number_of_threads_is_put_back_whatever_happens(two_threads):
    with computing_on(1):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 2
    with pytest.raises(ValueError, match="odd"), computing_on(1):
        raise ValueError("odd")
    assert torch.get_num_threads() == 2


def test_a_copy_of_the_process_keeps_its_one_thread(two_threads, monkeypatch):
    monkeypatch.setattr(worker_start, "in_a_copy", lambda: True)
    with computing_on(1):
        assert torch.get_num_threads() == 2
