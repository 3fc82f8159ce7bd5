"""Scripts that go on after an error, and processes that are forked from a training: no wrong batch, and no hang."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from flatout.pipeline import compile_loader

NUMBER = 500  # the two that are proven at the start of a pass are seldom the last ones


class FailsOnce(Dataset):
    def __init__(self, mark):
        self.mark = mark

    def __len__(self):
        return NUMBER

    def __getitem__(self, index):
        if index == NUMBER - 11 and not self.mark.exists():
            self.mark.touch()
            raise LookupError("a bad sample")
        return torch.tensor([float(index)])


def stacked(samples):
    return torch.stack(samples)


@pytest.mark.parametrize("num_workers", [0, 1, 2])
@pytest.mark.parametrize("collate_fn", [None, stacked])
@pytest.mark.few(2)
@pytest.mark.slow
def test_after_an_error_that_the_script_leaves_behind_batches_are_the_plain_ones(tmp_path, num_workers, collate_fn):
    made = compile_loader(DataLoader(FailsOnce(tmp_path / "failed"), 4, num_workers=num_workers, collate_fn=collate_fn))
    failed = 0
    for _ in range(4):
        walked, numbers, ended = iter(made), [], False
        while not ended:
            try:
                numbers.append(next(walked).flatten().tolist())
            except StopIteration:
                ended = True
            except LookupError:
                failed += 1
        whole = torch.arange(float(NUMBER)).view(-1, 4).tolist()
        assert numbers in (whole, whole[:-3] + whole[-2:])
    assert failed <= 1 and numbers == whole


class Large(Dataset):
    def __init__(self):
        self.rows = np.ones((5000, 4000), np.uint8)

    def __len__(self):
        return 16

    def __getitem__(self, index):
        many = torch.ones(400_000) * float(self.rows[index, 0])
        return (many + many)[:4].clone()


def on_two_threads(_):
    torch.set_num_threads(2)


FIRST_PASS = """
import torch
from torch.utils.data import DataLoader
from tests.unit.pipeline.serve.test_going_on import Large, on_two_threads
from flatout.pipeline import compile_loader
torch.set_num_threads(2)
made = compile_loader(DataLoader(Large(), 8, num_workers=1, worker_init_fn=on_two_threads, timeout=20))
print(len(list(made)))
"""


@pytest.mark.full
def test_workers_that_compute_on_several_threads_can_be_forked_after_arrays_were_summed():
    ended = subprocess.run([sys.executable, "-c", FIRST_PASS], capture_output=True, text=True, timeout=90)
    assert ended.stdout.split() == ["2"], ended.stderr
