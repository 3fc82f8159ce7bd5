"""Whether what is kept of a loader may still be served, and what is said where it was served too long."""

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from flatout.errors import ChangedTooLate
from flatout.watch.freshness import Freshness


class Rows(Dataset):
    def __init__(self):
        self.scale, self.table = 1.0, torch.arange(8.0)

    def __len__(self):
        return 8

    def __getitem__(self, index):
        return self.table[index] * self.scale


@pytest.fixture
def loader():
    return DataLoader(Rows(), batch_size=2)


def test_it_holds_until_the_data_set_changes_and_never_again(loader):
    fresh = Freshness(loader)
    assert fresh.sees_all
    assert fresh.begin_pass(live=True)
    assert fresh.holds()
    loader.dataset.scale = 2.0
    assert not fresh.holds()
    assert "Rows.scale" in fresh.changed
    loader.dataset.scale = 1.0
    assert not fresh.holds()
    assert not fresh.begin_pass(live=True)


def test_numbers_in_memory_are_seen_too(loader):
    fresh = Freshness(loader)
    loader.dataset.table[3] = 9.0
    assert not fresh.holds()
    assert "table" in fresh.changed


def test_what_may_change_as_it_likes_is_left_out(loader):
    loader.dataset.transform = [1.0]
    fresh = Freshness(loader, lambda: [loader.dataset.transform])
    loader.dataset.transform.append(2.0)
    assert fresh.holds()


def test_further_things_are_named_as_they_are_called(loader):
    also = Rows()
    fresh = Freshness(loader, also=[("the collator", also)])
    also.table[2] = 3.0
    assert not fresh.holds()
    assert fresh.changed == "the collator.table"


def test_a_setting_of_the_process_that_is_another_is_no_change_for_good(loader):
    fresh = Freshness(loader)
    torch.set_default_dtype(torch.float64)
    try:
        assert not fresh.holds()
        assert fresh.changed == ""
        assert fresh.begin_pass(live=True)
    finally:
        torch.set_default_dtype(torch.float32)
    assert fresh.holds()


def test_what_workers_would_not_see_stops_the_training_with_the_number_of_batches(loader):
    fresh = Freshness(loader)
    fresh.begin_pass(live=False)
    assert all(fresh.holds_here() for _ in range(3))
    loader.dataset.scale = 2.0
    with pytest.raises(
        ChangedTooLate, match=r"Rows\.scale changed while up to 4 batches of Rows were served from memo"
    ):
        fresh.holds_here()


def test_earlier_passes_count_where_the_change_may_be_older(loader):
    fresh = Freshness(loader, way="made by workers")
    fresh.begin_pass(live=True)
    fresh.holds(5)
    fresh.begin_pass(live=True)
    fresh.holds(2)
    with pytest.raises(ChangedTooLate, match="sample 3 changed while up to 7 batches of Rows were made by workers"):
        fresh.too_late("sample 3", in_this_pass=False)
    assert fresh.changed == "sample 3"


def test_a_warning_takes_the_place_of_the_error_where_that_is_wanted(loader):
    fresh = Freshness(loader, on_change="warn")
    with pytest.warns(RuntimeWarning, match="leave this loader out"):
        fresh.too_late("sample 3")


def test_what_changes_by_reading_alone_is_said_so(loader):
    fresh = Freshness(loader)
    assert fresh.changed_by_reading() == ""
    loader.dataset.scale = 2.0
    assert fresh.changed_by_reading().startswith("Rows changes while it is read: ")


def test_files_count_only_as_they_are_when_a_sample_is_made(loader, tmp_path):
    file = tmp_path / "rows.bin"
    file.write_bytes(b"1")
    fresh = Freshness(loader, asked=frozenset({str(file)}))
    assert not fresh.sees_all
    assert fresh.files_hold()
    file.write_bytes(b"22")
    assert not fresh.files_hold()
    assert not fresh.files_hold()  # it is remembered
    assert not fresh.begin_pass(live=False)
    assert str(file) in fresh.changed


def test_the_end_of_a_pass_looks_at_what_batches_do_not(loader, tmp_path):
    file = tmp_path / "rows.bin"
    file.write_bytes(b"1")
    fresh = Freshness(loader, asked=frozenset({str(file)}))
    fresh.begin_pass(live=True)
    fresh.end_pass()
    file.write_bytes(b"22")
    with pytest.raises(ChangedTooLate, match="the file"):
        fresh.end_pass()
    fresh.end_pass()  # said once
