"""Settings, libraries, files, weak references: what no data set holds and samples are made from is as in plain."""

import builtins
import copy
import decimal
import os
import pickle
import time
import weakref

import numpy as np
import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils.data import DataLoader, Dataset
from torch.utils.data import get_worker_info as own_place

from flatout import compile_loader

LENGTH = 32
SCALE = 1.0


class Key:
    pass


class Raised(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        return made + 1 if function is torch.sin else made


class Reads(Dataset):
    """Gives what `read` finds, of something else than the data set."""

    def __init__(self, read):
        self.read = read

    def __len__(self):
        return LENGTH

    def __getitem__(self, index):
        sorted((place * 7919) % 401 for place in range(400))
        return torch.tensor(float(self.read(index))), index


def eval_of_a_global(_):
    return eval("SCA" + "LE")


def third(_):
    return decimal.Decimal(1) / 3


def bytes_of_a_zero(_):
    return torch.zeros(1).element_size()


def bytes_of_a_product(_):
    return (torch.ones(1, 2) @ torch.ones(2, 1)).element_size()


def sine(_):
    return torch.sin(torch.tensor(1.0))


def smallest(_):
    return np.sort(np.array([3.0, 1.0]))[0]


def clamped(_):
    return torch.tensor(5.0).clamp(max=2.0)


def added(_):
    return sum([1, 2])


def hour(_):
    return time.localtime(0).tm_hour


def graph_mode(_):
    return torch.is_grad_enabled()


def read_here(index):
    with open(f"{index % 4}.txt") as file:
        return file.read()


def set_scale(monkeypatch):
    globals().update(SCALE=3.0)


def in_tokyo(monkeypatch):
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()


CASES = {
    "a name that is not written down": (eval_of_a_global, set_scale),
    "the precision of decimals": (third, lambda m: setattr(decimal.getcontext(), "prec", 3)),
    "the default type": (bytes_of_a_zero, lambda m: torch.set_default_dtype(torch.float64)),
    "a function of torch": (sine, lambda m: m.setattr(torch, "sin", torch.cos)),
    "a function of NumPy": (smallest, lambda m: m.setattr(np, "sort", lambda values: values)),
    "a method of tensors": (clamped, lambda m: m.setattr(torch.Tensor, "clamp", lambda x, max: x, raising=False)),
    "a built-in function": (added, lambda m: m.setattr(builtins, "sum", lambda values: 9)),
    "the time zone": (hour, in_tokyo),
    "the current folder": (read_here, lambda m: os.chdir("../other")),
    "a file of the same size and time": (read_here, lambda m: rewritten("1.txt")),
    "a link to a folder": (lambda i: read_of(i), lambda m: led_elsewhere()),
}


def read_of(index):
    with open(f"{FOLDER}/current/{index % 4}.txt") as file:
        return file.read()


def rewritten(name):
    before = os.stat(name)
    with open(name, "r+") as file:
        file.write("777")
    os.utime(name, ns=(before.st_atime_ns, before.st_mtime_ns))


def led_elsewhere():
    os.symlink("../other", "new")
    os.replace("new", "current")


FOLDER = ""


@pytest.fixture
def settings(tmp_path, monkeypatch):
    for place, number in (("here", 100), ("other", 200)):
        (tmp_path / place).mkdir()
        for index in range(4):
            (tmp_path / place / f"{index}.txt").write_text(str(number + index))
    monkeypatch.chdir(tmp_path / "here")
    os.symlink(".", "current")
    globals().update(FOLDER=str(tmp_path / "here"))
    precision = decimal.getcontext().prec
    yield
    decimal.getcontext().prec = precision
    torch.set_default_dtype(torch.float32)
    globals().update(SCALE=1.0)
    monkeypatch.undo()
    time.tzset()


def values(loader):
    return [batch[0].tolist() for batch in loader]


@pytest.mark.parametrize("case", CASES, ids=lambda name: name.replace(" ", "-"))
@pytest.mark.slow
def test_what_is_out_of_sight_is_in_the_next_batch(case, settings, monkeypatch):
    read, change = CASES[case]
    loader = compile_loader(DataLoader(Reads(read), batch_size=8))
    before = [values(loader) for _ in range(3)]
    assert before[0] == before[-1] == values(DataLoader(Reads(read), batch_size=8))
    walked = iter(loader)
    next(walked)
    change(monkeypatch)
    plain = values(DataLoader(Reads(read), batch_size=8))
    assert plain != before[0]
    assert values(walked) == plain[1:]
    assert values(loader) == plain


@pytest.mark.parametrize(
    ("read", "mode"),
    [
        (graph_mode, torch.no_grad),
        (bytes_of_a_product, lambda: torch.autocast("cpu", torch.bfloat16)),
        (sine, Raised),
    ],
)
def test_a_pass_in_another_mode_is_the_scripts_own_and_the_next_one_is_served(read, mode):
    loader, plain = (wrap(DataLoader(Reads(read), batch_size=8)) for wrap in (compile_loader, lambda given: given))
    usual = [values(loader) for _ in range(3)][-1]
    with mode():
        assert values(loader) == values(plain) != usual
    assert values(loader) == usual == values(plain)


def test_what_a_weak_dictionary_lets_go_is_seen():
    key, other = Key(), Key()
    held = weakref.WeakKeyDictionary({key: 1.0, other: 2.0})
    loader = compile_loader(DataLoader(Reads(lambda _: sum(held.values())), batch_size=8))
    assert [values(loader)[0][0] for _ in range(3)] == [3.0, 3.0, 3.0]
    del other
    assert values(loader)[0][0] == 1.0
    held[key] = 7.0
    assert values(loader)[0][0] == 7.0


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda given: pickle.loads(pickle.dumps(given))])
def test_a_compiled_loader_may_be_copied_in_the_middle(copied):
    loader = compile_loader(DataLoader(Reads(added), batch_size=8))
    wanted = [values(loader) for _ in range(2)][-1]
    again = copied(loader)
    assert type(again) is type(loader)
    assert [values(again) for _ in range(3)] == [wanted] * 3
    assert values(loader) == wanted


def test_attributes_of_tensors_and_odd_strides_stay():
    class Tagged(Dataset):
        def __len__(self):
            return 8

        def __getitem__(self, index):
            sorted((place * 7919) % 4001 for place in range(4000))
            made = torch.full((1, 2, 3), float(index))
            made.tag = index
            return made

    loader = compile_loader(DataLoader(Tagged(), batch_size=4, collate_fn=list))
    assert [[[one.tag for one in batch] for batch in loader] for _ in range(3)] == [[[0, 1, 2, 3], [4, 5, 6, 7]]] * 3

    def last(samples):
        return torch.stack(samples).to(memory_format=torch.channels_last)

    loader = compile_loader(DataLoader(Tagged(), batch_size=4, collate_fn=last))
    wanted = [batch.stride() for batch in DataLoader(Tagged(), batch_size=4, collate_fn=last)]
    assert [[batch.stride() for batch in loader] for _ in range(3)] == [wanted] * 3


def test_who_asks_for_its_worker_under_another_name_is_left_alone():
    class Sharded(Dataset):
        def __len__(self):
            return 12

        def __getitem__(self, index):
            told = own_place()
            return torch.tensor([index, -1 if told is None else told.id])

    loader = compile_loader(DataLoader(Sharded(), batch_size=3, num_workers=2))
    wanted = [batch.tolist() for batch in DataLoader(Sharded(), batch_size=3, num_workers=2)]
    assert [[batch.tolist() for batch in loader] for _ in range(3)] == [wanted] * 3
    assert "which worker it is in" in loader.explain()
