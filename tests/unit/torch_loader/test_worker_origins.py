"""What the workers of loaders are copies of, and why there may be none."""

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from flatout.torch_loader import worker_origins
from flatout.torch_loader.worker_origins import WorkerOrigin, WorkerOrigins


class Rows(Dataset):
    def __init__(self):
        self.scale, self.rows, self.file = 1.0, None, None

    def __len__(self):
        return 6

    def __getitem__(self, index):
        return torch.tensor(index * self.scale) if self.rows is None else next(self.rows)


class SetsUp(Rows):
    def __getitem__(self, index):
        self.file = self.file or [1.0]
        return torch.tensor(index * self.file[0])


def loader(data=None, **named):
    return DataLoader(Rows() if data is None else data, **{"batch_size": 2, **named})


def test_where_nothing_has_changed_it_is_the_same_object():
    known, walked = WorkerOrigins(), loader()
    first = known.begin_pass(walked)
    assert first is not None
    assert not first.sets_up
    assert known.begin_pass(walked) is first


@pytest.mark.parametrize(
    "change",
    [
        lambda walked: setattr(walked.dataset, "scale", 2.0),
        lambda walked: setattr(walked, "collate_fn", torch.stack),
        lambda walked: setattr(walked, "worker_init_fn", print),
    ],
)
def test_after_a_change_new_workers_are_copies_of_something_else(change):
    known, walked = WorkerOrigins(), loader()
    first = known.begin_pass(walked)
    change(walked)
    second = known.begin_pass(walked)
    assert second is not None
    assert second is not first


def test_modes_that_workers_begin_with_count():
    origin = WorkerOrigin(walked := loader())
    assert origin.asks_as_before(walked)
    with torch.no_grad():
        assert not origin.asks_as_before(walked)
    assert origin.begins(walked)


def test_what_may_change_unseen_has_no_workers():
    data = Rows()
    data.rows = iter([torch.tensor(1)])
    known, walked = WorkerOrigins(), loader(data)
    assert WorkerOrigin.of(walked) is None
    assert known.begin_pass(walked) is None
    assert known.reasons[walked] == "Rows may change unseen"
    data.rows = None
    assert known.begin_pass(walked) is None  # it stays so


def test_a_data_set_that_sets_itself_up_is_said_to_where_that_is_allowed():
    known = WorkerOrigins()
    assert known.begin_pass(loader(SetsUp()), may_set_up=True).sets_up
    refused = loader(SetsUp())
    assert known.begin_pass(refused) is None
    assert "changes while it is read: SetsUp.file" in known.reasons[refused]


def test_batches_are_made_in_a_copy_once_as_long_as_the_loader_asks_as_before(monkeypatch):
    made = []
    plain = worker_origins.make_some
    monkeypatch.setattr(worker_origins, "make_some", lambda *args, **named: made.append(1) or plain(*args, **named))
    known, walked = WorkerOrigins(), loader()
    for scale in (1.0, 2.0, 3.0):
        walked.dataset.scale = scale
        known.begin_pass(walked)
    assert len(made) == 1
    walked.collate_fn = torch.stack
    known.begin_pass(walked)
    assert len(made) == 2


def test_a_data_set_that_goes_on_to_change_has_none_any_more():
    known, walked = WorkerOrigins(), loader()
    for _ in range(2):
        known.changed(walked)
        assert known.begin_pass(walked) is not None
    known.changed(walked)
    assert known.begin_pass(walked) is None
    assert known.reasons[walked] == "Rows changes again and again"


def test_looking_anew_may_not_take_more_than_a_tenth_of_a_pass():
    known, walked = WorkerOrigins(), loader()
    for scale in range(5):
        walked.dataset.scale = float(scale)
        known.begin_pass(walked, pass_s=1e-9)
    assert "changes again and again" in known.reasons[walked]
    known, walked = WorkerOrigins(), loader()
    for scale in range(5):
        walked.dataset.scale = float(scale)
        assert known.begin_pass(walked, pass_s=1e9) is not None


def test_the_first_reason_stays():
    known, walked = WorkerOrigins(), loader()
    known.refuse(walked, "is odd")
    known.refuse(walked, "is even")
    assert known.reasons[walked] == "Rows is odd"
