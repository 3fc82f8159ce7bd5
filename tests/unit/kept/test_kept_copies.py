"""Copies to a device, kept there: the same bits for everybody, whoever writes to the tensor."""

import contextlib
import gc
import threading
import types

import numpy as np
import pytest
import torch

from flatout.errors import ChangedTooLate
from flatout.kept.kept_copies import KeptCopies
from flatout.kept.reports import Reports
from flatout.watch.memory.written_pages import written_pages

_to = torch.Tensor.to
LARGE = pytest.mark.skipif(written_pages() is None, reason="this kernel does not tell which pages were written")


class Never:
    """The pace of proofs that are never due."""

    due = False


class Copies:
    """`Tensor.to` as it stands for copies to a device: the CPU's own memory, with `copy=True`."""

    def __init__(self, **about):
        self.made, self.acted, self.left = 0, 0, []
        about.setdefault("pace", Never())
        self.kept = KeptCopies("cpu", Reports(left=self.left.append, **about), self._act)
        self._copy = self.kept.copying("to", self._original)

    def _act(self):
        self.acted += 1

    def _original(self, tensor, *args, **kwargs):
        self.made += 1
        return _to(tensor, *args, **kwargs)

    def __call__(self, tensor, *args, **kwargs):
        given = args or ("cpu",)
        made, plain = self._copy(tensor, *given, copy=True, **kwargs), _to(tensor, *given, copy=True, **kwargs)
        assert torch.equal(made, plain)
        assert (made.stride(), made.dtype, made.requires_grad) == (plain.stride(), plain.dtype, plain.requires_grad)
        return made


@pytest.mark.parametrize("size", [7, pytest.param(100_000, marks=LARGE)])
def test_a_tensor_that_stays_as_it_is_is_copied_three_times(size):
    copies, mask = Copies(), torch.randn(size)
    got = [copies(mask) for _ in range(10)]
    assert (copies.made, copies.acted) == (3, 7)
    assert len({each.data_ptr() for each in got}) == 10


class Always:
    """The pace of proofs that are always due."""

    due = True

    def proving(self):
        return contextlib.nullcontext()


@pytest.mark.parametrize("shape", [(), (1,), (2, 3)])
def test_tensors_of_any_shape_are_proven(shape):
    copies, scale = Copies(pace=Always()), torch.randn(shape)
    for _ in range(6):
        copies(scale)
    assert (copies.made, copies.acted) == (6, 0)
    assert not copies.kept.off


def test_a_write_that_is_seen_while_it_is_proven_ends_no_training(monkeypatch):
    copies, mask = Copies(pace=Always()), torch.randn(8)
    for _ in range(4):
        copies(mask)
    (known,) = copies.kept._sent.values()
    known.copy.zero_()
    looks = iter(["", "the tensor"])
    monkeypatch.setattr(known.watch, "look", lambda: next(looks))
    copies(mask)
    assert not copies.kept._sent
    assert not copies.kept.off


def test_everybody_may_write_to_his_copy():
    copies, mask = Copies(), torch.zeros(9)
    for _ in range(9):
        copies(mask).add_(1)
    assert copies.acted == 6


WRITES = {
    "torch": lambda tensor: tensor.add_(1),
    "an item": lambda tensor: tensor.__setitem__(2, 5.0),
    "data": lambda tensor: tensor.data.mul_(2),
    "numpy": lambda tensor: tensor.numpy().__setitem__(1, 8.0),
    "a view": lambda tensor: tensor.view(-1)[3:].fill_(4),
    "another memory": lambda tensor: setattr(tensor, "data", torch.randn(tensor.shape)),
    "set": lambda tensor: tensor.set_(torch.randn(tensor.shape)),
    "in place of it": lambda tensor: tensor.resize_(3).fill_(1),
}


@pytest.mark.parametrize("size", [8, pytest.param(50_000, marks=LARGE)])
@pytest.mark.parametrize("write", WRITES)
def test_whoever_writes_the_next_copy_has_it(write, size):
    copies, mask = Copies(), torch.randn(size)
    for turn in range(12):
        if turn in (5, 9):
            WRITES[write](mask)
        copies(mask)
    assert copies.acted > 0


def test_parts_of_a_tensor_have_copies_of_their_own():
    copies, table = Copies(), torch.randn(40, 6)
    for turn in range(8):
        for rows in (5, 7):
            copies(table[:rows])
            copies(table[:rows].t())
            copies(table[2:rows])
        if turn == 6:
            table[3] = 1
    assert copies.acted == 6 * (7 - 3)


def test_a_tensor_in_the_place_of_one_that_is_gone_is_another_one():
    copies = Copies()
    for _ in range(50):
        mask = torch.randn(9)
        for _ in range(4):
            copies(mask)
        del mask
        gc.collect()
    assert copies.acted == 50


def test_what_is_no_plain_tensor_of_the_cpu_is_copied_each_time():
    copies = Copies()
    shared = torch.randn(100_000).share_memory_()
    cases = [
        torch.randn(3, requires_grad=True),
        torch.nn.Parameter(torch.randn(3)),
        torch.randn(3, dtype=torch.complex64).conj(),
        torch.empty(0),
        shared,
    ]
    for _ in range(6):
        for each in cases:
            copies._copy(each, "cpu", copy=True)
        copies._copy(cases[-1], torch.float64, copy=True)
        copies._copy(cases[-1], "cpu", torch.float64, copy=True)
    assert copies.acted == 0
    assert any("others may write" in each for each in copies.left)


def test_a_tensor_of_memory_that_others_write_is_never_wrong():
    copies = Copies()
    tensor = torch.zeros(50_000).share_memory_()
    array = tensor.numpy()
    for turn in range(9):
        array[turn] = turn + 1
        copies(tensor)
    assert copies.acted == 0


def test_a_tensor_that_is_read_from_a_file_may_change_unseen(tmp_path):
    array = np.memmap(tmp_path / "x", dtype=np.float32, mode="w+", shape=(50_000,))
    copies, tensor = Copies(), torch.from_numpy(array)
    for turn in range(9):
        with open(tmp_path / "x", "r+b") as file:
            file.seek(4 * turn)
            file.write(np.float32(turn + 1).tobytes())
        copies(tensor)
    assert copies.acted == 0


def test_what_does_not_fit_is_not_kept(monkeypatch):
    from flatout.kept import kept_copies

    monkeypatch.setattr(kept_copies, "_MOST_BYTES", 100)
    copies, small, large = Copies(), torch.randn(10), torch.randn(1000)
    for _ in range(6):
        copies(small)
        copies(large)
    assert copies.kept._num_bytes <= 100


def test_batches_that_come_once_are_forgotten():
    copies = Copies()
    for _ in range(1000):
        copies(torch.randn(2))
    assert copies.acted == 0
    assert len(copies.kept._sent) <= 256


def test_nothing_is_answered_on_other_threads():
    copies, mask = Copies(), torch.randn(9)
    for _ in range(4):
        copies(mask)
    thread = threading.Thread(target=copies, args=(mask,))
    thread.start()
    thread.join()
    assert (copies.made, copies.acted) == (4, 1)


@pytest.mark.parametrize("on_change", ["stop", "warn"])
def test_a_proof_that_fails_ends_it(on_change):
    copies = Copies(on_change=on_change)
    mask = torch.randn(9)
    for _ in range(5):
        copies(mask)
    next(iter(copies.kept._sent.values())).copy.add_(1)  # as if a write had not been seen
    copies.kept._reports.pace.__class__.due = True
    copies.kept._reports.pace.__class__.proving = lambda self: threading.Lock()
    try:
        if on_change == "stop":
            with pytest.raises(ChangedTooLate):
                copies(mask)
        else:
            with pytest.warns(RuntimeWarning, match="other values"):
                copies(mask)
    finally:
        Never.due = False
        del Never.proving
    assert copies.kept.off
    copies(mask)


def test_a_tensor_that_is_swapped_is_let_go_before():
    copies, one, other = Copies(), torch.ones(7), torch.zeros(7)
    for _ in range(4):
        copies(one)
    swap = copies.kept.swapping(torch.utils.swap_tensors)
    swap(one, other)
    assert copies(one).sum() == 0 and copies(other).sum() == 7


def test_copies_made_while_a_graph_is_captured_are_neither_kept_nor_answered(monkeypatch):
    captured, made = [], []
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: bool(captured))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: types.SimpleNamespace(cuda_stream=7))
    copies = KeptCopies("cuda", Reports(pace=Never()), lambda: made.append("answered"))
    copy = copies.copying("to", lambda tensor, *args, **kwargs: made.append("made") or _to(tensor, "cpu", copy=True))
    mask = torch.randn(8)
    captured.append(1)
    for _ in range(6):
        copy(mask, "cuda")
    assert made == ["made"] * 6
    captured.clear()
    for _ in range(5):
        copy(mask, "cuda")
    assert made[6:] == ["made"] * 3 + ["answered"] * 2
    captured.append(1)
    copy(mask, "cuda")
    captured.clear()
    copy(mask, "cuda")
    assert made[11:] == ["made", "answered"]
