"""Forecast tomorrow's power demand from last week's."""
import argparse
import math
import random

import torch
import torch.nn as nn

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=200)
parser.add_argument("--batch", type=int, default=48)
args = parser.parse_args()
random.seed(2)
torch.manual_seed(2)

HOURS, PAST, AHEAD = 9000, 96, 24
demand = [
    50 + 12 * math.sin(h / 24 * 2 * math.pi) + 6 * math.sin(h / 168 * 2 * math.pi) + random.gauss(0, 2)
    for h in range(HOURS)
]
holiday = [(h // 24) % 29 == 0 for h in range(HOURS)]
SPLIT = 7200


def features(h):  # <<
    return [(demand[h] - 50) / 15, math.sin(h % 24 / 24 * 2 * math.pi), math.cos(h % 24 / 24 * 2 * math.pi),  # <<
            float(holiday[h])]  # <<


def windows(starts, size):
    for k in range(0, len(starts), size):
        past, ahead = [], []
        for s in starts[k : k + size]:
            past.append([features(h) for h in range(s, s + PAST)])  # <<
            ahead.append([(demand[h] - 50) / 15 for h in range(s + PAST, s + PAST + AHEAD)])  # <<
        yield torch.tensor(past), torch.tensor(ahead)  # <<


class Forecast(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv1d(4, width, 5, 2), nn.ReLU(), nn.Conv1d(width, width, 5, 2), nn.ReLU())
        self.head = nn.Linear(width * 21, AHEAD)

    def forward(self, x):
        return self.head(self.conv(x.transpose(1, 2)).flatten(1))


def mean_error(model, starts):
    model.eval()
    total = 0.0
    for x, y in valid:  # <<2
        total += (model(x) - y).abs().sum().item()  # <<2
    model.train()
    return total / sum(y.numel() for _, y in valid)


model = Forecast()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
valid = list(windows(list(range(SPLIT, HOURS - PAST - AHEAD, 2)), 2))
for epoch in range(args.epochs):
    starts = random.sample(range(SPLIT - PAST - AHEAD), 1536)
    for x, y in windows(starts, args.batch):  # <<
        loss = nn.functional.l1_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch} train {loss.item():.4f} valid {mean_error(model, valid):.4f}")  # <<2
