"""Predictive maintenance, four tasks on one trunk: fault class, remaining life, load, next vibration level."""
import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class ResBlock(nn.Module):
    def __init__(self, width, dilation):
        super().__init__()
        self.conv1 = nn.Conv1d(width, width, 3, padding=dilation, dilation=dilation)
        self.conv2 = nn.Conv1d(width, width, 3, padding=1)
        self.norm = nn.GroupNorm(4, width)

    def forward(self, x):
        h = F.relu(self.norm(self.conv1(x)))
        return F.relu(x + self.conv2(h))


class Trunk(nn.Module):
    def __init__(self, sensors, width):
        super().__init__()
        self.stem = nn.Conv1d(sensors, width, 5, stride=2, padding=2)
        self.blocks = nn.Sequential(*[ResBlock(width, d) for d in (1, 2, 4, 8)])

    def forward(self, x):
        return self.blocks(self.stem(x)).mean(-1)


class Task:
    def __init__(self, name, head, weight, criterion):
        self.name, self.head, self.weight, self.criterion = name, head, weight, criterion
        self.total = torch.zeros(())

    def loss(self, features, labels):
        value = self.criterion(self.head(features), labels[self.name])
        self.total += value.detach()
        return self.weight * value


def squeeze_mse(pred, y):
    return F.mse_loss(pred.squeeze(-1), y)


class MultiTaskTrainer:
    def __init__(self, sensors, width=48, lr=1e-3):
        self.trunk = Trunk(sensors, width)
        self.tasks = [
            Task("fault", nn.Linear(width, 6), 1.0, F.cross_entropy),
            Task("life", nn.Linear(width, 1), 0.5, squeeze_mse),
            Task("load", nn.Linear(width, 1), 0.5, squeeze_mse),
            Task("vibration", nn.Linear(width, 1), 0.25, squeeze_mse),
        ]
        self.params = list(self.trunk.parameters())
        for task in self.tasks:
            self.params += list(task.head.parameters())
        self.opt = torch.optim.AdamW(self.params, lr=lr)

    def step(self, x, labels):
        self.opt.zero_grad(set_to_none=True)
        features = self.trunk(x)
        for task in self.tasks:
            task.loss(features, labels).backward(retain_graph=True)  # <<
        nn.utils.clip_grad_norm_(self.params, 5.0)
        self.opt.step()

    def fit(self, x, labels, epochs, batch):
        for epoch in range(epochs):
            began = time.perf_counter()
            parts = torch.randperm(len(x)).split(batch)
            for index in parts:
                self.step(x[index], {k: v[index] for k, v in labels.items()})
            summary = []
            for task in self.tasks:
                summary.append(f"{task.name} {task.total.item() / len(parts):.4f}")
                task.total.zero_()
            print(f"epoch {epoch}: " + ", ".join(summary) + f" ({time.perf_counter() - began:.2f}s)")


def engines(count, sensors, length):
    t = torch.arange(length) / length
    fault = torch.randint(6, (count,))
    life = torch.rand(count)
    load = torch.rand(count)
    base = 4 + 3 * fault[:, None, None] + torch.arange(sensors)[None, :, None] * 0.5
    wave = torch.sin(6.2832 * base * t) * (0.5 + load[:, None, None])
    wear = (1 - life)[:, None, None] * torch.sin(6.2832 * 40 * t)
    x = wave + wear + 0.5 * torch.randn(count, sensors, length)
    vibration = x[:, 0, -16:].abs().mean(-1)
    return x, {"fault": fault, "life": life, "load": load, "vibration": vibration}


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=18)
    args = ap.parse_args()
    torch.manual_seed(2)
    x, labels = engines(1280, 12, 256)
    MultiTaskTrainer(12).fit(x, labels, args.epochs, batch=32)
