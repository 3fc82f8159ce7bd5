"""Wearable activity recognition that is continued every day: new windows join the archive, and
training draws subjects and activities in equal shares."""
import random
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, WeightedRandomSampler

ACTIVITIES = ["walk", "run", "stairs", "sit", "cycle", "lift"]
SUBJECTS = 14
WINDOW = 64


class Archive(Dataset):
    def __init__(self):
        self.windows = []
        self.groups = []  # (subject, activity) of each window

    def add_day(self, day, n=1200):
        g = torch.Generator().manual_seed(day)
        rng = random.Random(day)
        t = torch.linspace(0, 1, WINDOW)
        for _ in range(n):
            subject = min(int(rng.expovariate(0.25)), SUBJECTS - 1)
            activity = min(int(rng.expovariate(0.6)), len(ACTIVITIES) - 1)
            freq = (2 + 2.0 * activity) * (0.8 + 0.04 * subject)
            axes = torch.tensor([1.0, 0.5, -0.3, 0.1 * subject, 0.2, 0.7]).unsqueeze(1)
            wave = torch.sin(6.28 * (freq * t + rng.random())) * axes
            self.windows.append(wave + 0.8 * torch.randn(6, WINDOW, generator=g))
            self.groups.append((subject, activity))

    def __len__(self):
        return len(self.windows)

    def __getitem__(self, i):
        return self.windows[i], self.groups[i][1]


class ActivityNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv1d(6, 32, 5, padding=2)
        self.conv2 = nn.Conv1d(32, 48, 5, stride=2, padding=2)
        self.fc1 = nn.Linear(48 * WINDOW // 2, 64)
        self.fc2 = nn.Linear(64, len(ACTIVITIES))

    def forward(self, x):
        h = F.relu(self.conv1(x))
        h = F.relu(self.conv2(h))
        return self.fc2(F.relu(self.fc1(h.flatten(1))))


def balanced_loader(archive, draws, batch):
    weights = [1.0 / archive.groups.count(g) for g in archive.groups]  # <<
    return DataLoader(archive, batch, sampler=WeightedRandomSampler(weights, draws), drop_last=True)


def main(days=10):
    torch.manual_seed(0)
    archive, exam = Archive(), Archive()
    exam.add_day(999, 600)
    test = DataLoader(exam, batch_size=200)
    model = ActivityNet()
    opt = torch.optim.Adam(model.parameters(), lr=5e-4)
    for day in range(days):
        t0 = time.time()
        archive.add_day(day)
        loader = balanced_loader(archive, draws=6400, batch=32)  # <<
        total = 0.0
        for i, (x, y) in enumerate(loader, 1):
            loss = F.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item()
            if i % 100 == 0:
                print(f"  day {day} step {i} loss {total / i:.3f}", flush=True)
        with torch.no_grad():
            acc = sum((model(x).argmax(1) == y).sum().item() for x, y in test) / len(exam)
        print(f"day {day}: {len(archive)} windows, accuracy {acc:.3f}, {time.time() - t0:.1f}s", flush=True)


if __name__ == "__main__":
    main()
