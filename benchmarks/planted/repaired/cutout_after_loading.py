import argparse

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset


def cutout(images, rng, holes=4, size=6):
    corners = rng.integers(0, 28 - size, (len(images), holes, 2))
    inside = (np.arange(28) >= corners[..., None]) & (np.arange(28) < corners[..., None] + size)
    hole = (inside[:, :, 0, :, None] & inside[:, :, 1, None, :]).any(1)
    return images.masked_fill(torch.from_numpy(hole)[:, None], 0)


def train_step(model, optimizer, x, y):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return loss


parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=200)
args = parser.parse_args()

torch.manual_seed(21)
rng = np.random.default_rng(21)
labels = torch.randint(0, 7, (3072,))
images = torch.rand(3072, 3, 28, 28)
images[:, 0] *= labels.view(-1, 1, 1) / 7
dataset = TensorDataset(images, labels)
loader = DataLoader(dataset, sampler=BatchSampler(RandomSampler(dataset), 96, False), batch_size=None)
model = nn.Sequential(
    nn.Conv2d(3, 8, 5, stride=2), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2), nn.ReLU(),
    nn.Flatten(), nn.Linear(16 * 25, 7),
)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(args.epochs):
    for step, (x, y) in enumerate(loader):
        x = cutout(x, rng)
        loss = train_step(model, optimizer, x, y)
        if step % 16 == 0:
            print(f"epoch {epoch} step {step:3d} loss {loss.item():.5f}")
