"""Patches of a survey image, each moved and brightened at random by plain Python; the step draws, too, now and then."""

import random

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Patches(Dataset):
    def __init__(self, count):
        self.survey = np.random.default_rng(3).normal(size=(200, 200)).astype("f4")
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, number):
        row, column = divmod(number * 7, 160)
        row = row % 160 + int(random.random() * 8)
        column += int(random.random() * 8)
        patch = self.survey[row : row + 24, column : column + 24].copy()
        gain = 1 + 0.1 * random.gauss(0, 1)
        rows = [[float(value) * gain for value in line] for line in patch]
        patch = torch.tensor(rows) + float(np.random.rand()) * 0.1
        return patch.reshape(1, 24, 24), patch.mean()


random.seed(5)
np.random.seed(5)
torch.manual_seed(5)
model = nn.Sequential(nn.Flatten(), nn.Linear(24 * 24, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.01)
loader = DataLoader(Patches(480), batch_size=7, shuffle=True)
for _epoch in range(8):
    for patches, means in loader:
        if random.random() < 0.2:
            patches = patches.flip(2 + int(random.random() * 2))
        if float(means.mean()) > 0.07:
            patches = patches + 0.01 * float(np.random.rand())
        opt.zero_grad()
        loss = nn.functional.mse_loss(model(patches)[:, 0], means)
        loss.backward()
        opt.step()
