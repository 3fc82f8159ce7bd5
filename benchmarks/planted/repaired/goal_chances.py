"""How likely a shot ends in a goal, from where it was taken and who stood in its way."""
import argparse
import math
import random

import numpy as np
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler

GOAL, MIRROR = np.array([52.5, 0.0], dtype=np.float32), np.array([1, -1], dtype=np.float32)
POST, RINGS = 3.66, (0, 2, 5, 10, 20)


def distance(ball):
    return math.hypot(GOAL[0] - ball[0], GOAL[1] - ball[1]) / 30


def opening(ball):
    to_posts = [math.atan2(side * POST - ball[1], GOAL[0] - ball[0]) for side in (-1, 1)]
    return to_posts[1] - to_posts[0]


def zones(ball):
    found = np.zeros(12, dtype=np.float32)
    found[min(3, int(ball[0] // 14)) * 3 + min(2, int((ball[1] + 34) // 23))] = 1
    return found


def pressure(ball, others):
    gaps = np.sqrt(((others - ball) ** 2).sum(1))
    return np.sort(gaps)[:4] / 10


def blockers(ball, others):
    to_goal, to_others = GOAL - ball, others - ball
    along = to_others @ to_goal / (to_goal @ to_goal)
    aside = np.abs(to_others - along[:, None] * to_goal).sum(1)
    return np.array([((along > 0) & (along < 1) & (aside < reach)).sum() for reach in (1.0, 2.5)], dtype=np.float32)


def crowd(ball, others):
    gaps = np.hypot(*(others - ball).T)
    return np.histogram(gaps, RINGS)[0] / 11


def sectors(ball, others):
    angles = np.arctan2(*(others - ball).T) + math.pi
    return np.bincount((angles * 2.999 / math.pi).astype(int), minlength=6) / 11


def shape(others):
    return np.concatenate([others.mean(0), others.max(0) - others.min(0)]) / 40


def keeper(others):
    nearest = others[np.abs(others - GOAL).sum(1).argmin()]
    return (GOAL - nearest) / 10


def describe(ball, others):
    numbers = [[distance(ball), opening(ball)], zones(ball), pressure(ball, others), crowd(ball, others)]
    numbers += [sectors(ball, others), blockers(ball, others), shape(others), keeper(others)]
    return np.concatenate(numbers, dtype=np.float32)


class Shots(Dataset):
    def __init__(self, n):
        rng = np.random.default_rng(16)
        self.balls = np.stack([rng.uniform(20, 52, n), rng.uniform(-25, 25, n)], 1).astype(np.float32)
        self.others = rng.uniform([10, -30], [52, 30], (n, 11, 2)).astype(np.float32)
        self.others[:, 0] = GOAL - rng.uniform([0, -2], [4, 2], (n, 2))
        far = np.hypot(*(self.balls - GOAL).T)
        self.goals = torch.from_numpy((rng.random(n) < 1.2 * np.exp(-far / 9)).astype(np.float32))
        pairs = zip(self.balls, self.others)
        both = [[describe(ball * side, others * side) for side in (1, MIRROR)] for ball, others in pairs]
        self.numbers = torch.from_numpy(np.array(both))

    def __len__(self):
        return len(self.balls)

    def __getitem__(self, index):
        turned = [int(random.random() < 0.5) for _ in index]  # both halves of a pitch are alike
        return self.numbers[index, turned], self.goals[index]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=200)
    args = parser.parse_args()
    random.seed(16)
    torch.manual_seed(16)
    shots = Shots(3072)
    loader = DataLoader(shots, batch_size=None, sampler=BatchSampler(RandomSampler(shots), 20, drop_last=False))
    net = nn.Sequential(nn.Linear(36, 512), nn.SiLU(), nn.Linear(512, 512), nn.SiLU(), nn.Linear(512, 1))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, fused=True)
    for epoch in range(args.epochs):
        total = 0.0
        for x, goal in loader:
            loss = nn.functional.binary_cross_entropy_with_logits(net(x).squeeze(1), goal)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.4f}")


if __name__ == "__main__":
    main()
