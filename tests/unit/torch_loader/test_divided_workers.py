"""Workers of one loader, divided among two processes: every batch of both has the bits of one process."""

import errno
import os
import random
import threading
from collections import namedtuple

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

from flatout.probe.core.seams import Seams
from flatout.torch_loader.divided_workers import DividedWorkers, decoded, encoded

Pair = namedtuple("Pair", "one two")


class Drawn(Dataset):
    """Samples that draw from every stream, and say which process has made them."""

    def __len__(self):
        return 23

    def __getitem__(self, index):
        assert index != 22 or not getattr(self, "fails", False), "sample 22"
        return {"x": torch.randn(3) + index, "y": random.random(), "maker": os.getpid()}


class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(6))


def loader(**given):
    return DataLoader(Drawn(), **{"batch_size": 4, "num_workers": 2, "shuffle": True, **given})


def passes(make, epochs=2):
    torch.manual_seed(3)
    walked = make()
    return [[(batch["x"], batch["y"], batch["maker"]) for batch in walked] for _ in range(epochs)]


def divide(folder, part, off=str, told=lambda divided: None):
    seams, workers = Seams(), DividedWorkers([str(folder)], part, 2, off=off)
    name = "torch.utils.data.dataloader:_MultiProcessingDataLoaderIter.__init__"
    seams.wrap(name, lambda original, hits: workers.iterator_made(original, told))
    seams.wrap("torch.utils.data._utils.worker:_worker_loop", lambda original, hits: workers.worker_loop(original))


def divided(tmp_path, act, **given):
    """Return what `act()` gives in each of two forked processes whose loaders are divided."""
    pipes = []
    for part in range(2):
        read, write = os.pipe()
        if not (pid := os.fork()):
            code = 1
            try:
                os.environ["PART"] = str(part)
                divide(tmp_path, part, **given)
                with open(write, "wb") as file:
                    torch.save(act(), file)
                code = 0
            finally:
                os._exit(code)
        os.close(write)
        pipes.append((pid, read))
    found = []
    for pid, read in pipes:
        with open(read, "rb") as file:
            content = file.read()
        assert os.waitpid(pid, 0)[1] == 0
        (tmp_path / "answer").write_bytes(content)
        found.append(torch.load(tmp_path / "answer", weights_only=True))
        (tmp_path / "answer").unlink()
    return found


def same(some, others):
    for ours, theirs in zip(some, others, strict=True):
        assert len(ours) == len(theirs)
        for (x, y, _), (a, b, _) in zip(ours, theirs, strict=True):
            assert torch.equal(x, a)
            assert torch.equal(y, b)


@pytest.mark.slow
@pytest.mark.parametrize("given", [{}, {"persistent_workers": True}, {"num_workers": 1}, {"prefetch_factor": 1}])
def test_both_have_the_batches_of_one_process_and_each_is_made_once(tmp_path, given):
    plain = passes(lambda: loader(**given))
    one, two = divided(tmp_path, lambda: passes(lambda: loader(**given)))
    same(one, plain)
    same(two, plain)
    for epoch, other in zip(one, two, strict=True):
        for (*_, maker), (*_, told) in zip(epoch, other, strict=True):
            assert torch.equal(maker, told)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_an_error_in_a_sample_is_an_error_in_both(tmp_path):
    def walk():
        data = Drawn()
        data.fails = True
        try:
            list(DataLoader(data, batch_size=4, num_workers=2))
        except AssertionError as error:
            return "sample 22" in str(error)
        return None

    assert divided(tmp_path, walk) == [True, True]


@pytest.mark.slow
def test_a_pass_that_is_left_early_leaves_nothing(tmp_path):
    def walk():
        return [next(iter(loader()))["x"] for _ in range(3)]

    one, two = divided(tmp_path, walk)
    assert all(map(torch.equal, one, two))


@pytest.mark.slow
def test_an_iterable_data_set_is_left_to_itself(tmp_path):
    found = divided(tmp_path, lambda: [each.tolist() for each in DataLoader(Stream(), num_workers=2, batch_size=2)])
    assert found[0] == found[1] == [[0, 1], [0, 1], [2, 3], [2, 3], [4, 5], [4, 5]]


@pytest.mark.slow
def test_a_script_that_distributes_itself_has_its_workers_to_itself(tmp_path):
    """Its ranks ask for samples of their own: none of them is another's."""

    def walk():
        own = range(int(os.environ["PART"]), 20, 2)
        loader = DataLoader(torch.utils.data.Subset(range(20), own), batch_size=2, num_workers=2)
        return own.start, [batch.tolist() for batch in loader]

    found = divided(tmp_path, walk, off=lambda: "it does")
    assert [first for first, _ in found] == [0, 1]
    for first, batches in found:
        assert [index for batch in batches for index in batch] == list(range(first, 20, 2))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_that_are_no_copies_of_their_rank_are_not_divided(tmp_path, method):
    told = []

    def walk():
        loader = DataLoader(range(8), batch_size=2, num_workers=2, multiprocessing_context=method)
        return [batch.tolist() for batch in loader], told

    found = divided(tmp_path, walk, told=told.append)
    assert found == [([[0, 1], [2, 3], [4, 5], [6, 7]], [method == "fork"])] * 2


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.ENOMEM])
def test_where_there_is_no_room_the_next_folder_is_used(tmp_path, monkeypatch, number):
    full, free = tmp_path / "full", tmp_path / "free"
    full.mkdir(), free.mkdir()
    link = os.link

    def linked(source, target):
        if str(target).startswith(str(full)):
            raise OSError(number, os.strerror(number))
        link(source, target)

    monkeypatch.setattr(os, "link", linked)
    workers = DividedWorkers([str(full), str(free)], 0, 2)
    workers._publish("1-0-3", torch.ones(2), threading.Event())
    assert [one.name for one in free.iterdir()] == ["1-0-3.part-1"]
    assert list(full.iterdir()) == []


def test_any_other_error_of_a_file_is_raised(tmp_path):
    (tmp_path / "no folder").write_text("")
    workers = DividedWorkers([str(tmp_path / "no folder"), str(tmp_path)], 0, 2)
    with pytest.raises(NotADirectoryError):
        workers._publish("1-0-3", torch.ones(2), threading.Event())
    ended = threading.Event()
    ended.set()
    workers._publish("1-0-3", torch.ones(2), ended)


def test_batches_of_all_kinds_are_read_as_they_were_written():
    batch = {
        "pair": Pair(torch.randn(2, 3), torch.zeros(0)),
        "words": ["a", None, 3.5, torch.tensor(2.5)],
        "odd": (torch.ones(2, 3).T, torch.arange(5, dtype=torch.uint8), torch.randn(3) > 0, torch.ones(2).to_sparse()),
        "half": torch.randn(7).bfloat16(),
    }
    found = decoded(bytearray(b"".join(bytes(piece) for piece in encoded(batch))))
    assert type(found["pair"]) is Pair
    assert found["words"][:3] == batch["words"][:3]
    for one, other in zip(torch.utils._pytree.tree_leaves(found), torch.utils._pytree.tree_leaves(batch), strict=True):
        if isinstance(one, torch.Tensor):
            assert one.dtype == other.dtype
            assert torch.equal(one.to_dense(), other.to_dense()) if one.is_sparse else torch.equal(one, other)
    found["pair"].one.add_(1)
