"""Input that takes longer than the training step: images augmented one by one, by random numbers of three streams."""

import random

import numpy
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0), random.seed(0), numpy.random.seed(0)


class Images(Dataset):
    def __init__(self, number, augmented):
        self.number, self.augmented = number, augmented

    def __len__(self):
        return self.number

    def __getitem__(self, index):
        rows = numpy.linspace(0, 6 + index % 7, 96)
        image = numpy.sin(rows[:, None] * (1 + index % 3) + rows[None]) + numpy.cos(rows * index)[None]
        for _ in range(6):  # smoothed, as small pictures are
            image = (image + numpy.roll(image, 1, 0) + numpy.roll(image, 1, 1) + image.T) / 4
        if self.augmented:
            top, left = int(random.random() * 32), int(random.random() * 32)
            image = image[top : top + 64, left : left + 64] * numpy.random.uniform(0.8, 1.2)
            return torch.from_numpy(image).float() + 0.05 * torch.randn(64, 64), index % 7
        return torch.from_numpy(image[16:80, 16:80]).float(), index % 7


model = nn.Sequential(nn.Flatten(), nn.Linear(64 * 64, 64), nn.ReLU(), nn.Linear(64, 7))
optimizer = torch.optim.SGD(model.parameters(), 1e-3)
train, valid = DataLoader(Images(640, True), 32, shuffle=True), DataLoader(Images(128, False), 32)
for epoch in range(4):
    for a, b in train:
        loss = nn.functional.cross_entropy(model(a), b)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        checked = sum(nn.functional.cross_entropy(model(a), b).item() for a, b in valid) / len(valid)
    print(f"{epoch} {loss.item():.6f} {checked:.6f}")
