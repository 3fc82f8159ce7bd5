"""The training that every script of this folder does: waits of known length in the data set, forward and backward.

Imported first: frameworks import torchvision, whose compiled operations do not load with a CPU build of torch.
"""

import contextlib
import os
import runpy
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

with contextlib.suppress(ImportError):
    runpy.run_path(str(Path(__file__).resolve().parents[2] / "tests" / "torchvision_stub.py"))

STEPS = int(os.environ.get("TRAINED_STEPS", "150"))
BATCH = 8
SAMPLE_S, FORWARD_S, BACKWARD_S = 0.0015, 0.012, 0.018


class Wait(torch.autograd.Function):
    """Waits in both directions, and changes nothing."""

    @staticmethod
    def forward(ctx, x):
        time.sleep(FORWARD_S)
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        time.sleep(BACKWARD_S)
        return gradient


class Rows(Dataset):
    """Rows that take a while each."""

    def __init__(self):
        generator = torch.Generator().manual_seed(0)
        self.x = torch.randn(STEPS * BATCH, 32, generator=generator)
        self.y = self.x[:, :1].clone()

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        time.sleep(SAMPLE_S)
        return self.x[i], self.y[i]


class Net(nn.Module):
    """Two layers with the wait between them."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(32, 64), nn.Linear(64, 1)

    def forward(self, x):
        return self.second(torch.relu(Wait.apply(self.first(x))))


def loader():
    """Return the training loader."""
    return DataLoader(Rows(), batch_size=BATCH, shuffle=True)
