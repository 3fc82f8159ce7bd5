"""Distil a sound tagger into a small one. The teacher sees the same randomly masked and shifted spectrograms,
so its targets are new for every batch."""
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

TAGS = 10


@dataclass
class Recipe:
    clips: int = 2000
    batch: int = 32
    teacher_epochs: int = 1
    student_epochs: int = 4
    temperature: float = 3.0
    alpha: float = 0.8
    lr: float = 2e-3


class Soundscapes(Dataset):
    """Spectrograms (40 x 64) with up to three overlapping events; multi-label."""

    def __init__(self, n, seed, augment):
        rng = np.random.default_rng(seed)
        self.augment = augment
        f, t = np.arange(40, dtype=np.float32)[:, None], np.arange(64, dtype=np.float32)[None]
        self.y = np.zeros((n, TAGS), np.float32)
        self.x = rng.normal(0, 0.6, (n, 1, 40, 64)).astype(np.float32)
        for i in range(n):
            for tag in rng.choice(TAGS, rng.integers(1, 4), replace=False):
                self.y[i, tag] = 1
                at, centre = rng.uniform(8, 56), 4 + 3.4 * tag + rng.normal(0, 0.7)
                sway = (1 + tag % 3) * np.sin(t / (2 + tag) + rng.uniform(0, 6))
                self.x[i, 0] += 2.2 * np.exp(-((f - centre - sway) / 1.3) ** 2 - ((t - at) / 9) ** 2)

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        x = torch.from_numpy(self.x[i])
        if self.augment:
            x = torch.roll(x, int(torch.randint(-10, 11, (1,))), 2)
            f0, t0 = int(torch.randint(0, 34, (1,))), int(torch.randint(0, 52, (1,)))
            x[:, f0:f0 + 5] = 0
            x[:, :, t0:t0 + 10] = 0
        return x, torch.from_numpy(self.y[i])


def tagger(width, depth):
    layers, c = [], 1
    for d in range(depth):
        o = width * 2 ** d
        layers += [nn.Conv2d(c, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True), nn.MaxPool2d(2)]
        c = o
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(c, TAGS)).to(
        memory_format=torch.channels_last)


def mean_ap(net, loader):
    net.eval()
    with torch.inference_mode():
        s, y = zip(*[(net(x.contiguous(memory_format=torch.channels_last)), y) for x, y in loader])
    s, y = torch.cat(s), torch.cat(y)
    aps = []
    for k in range(TAGS):
        hit = y[s[:, k].argsort(descending=True), k]
        aps.append(((hit.cumsum(0) / torch.arange(1, len(hit) + 1)) * hit).sum() / hit.sum())
    net.train()
    return torch.stack(aps).mean().item()


def fit(name, net, train, test, epochs, lr, loss_of):
    opt = torch.optim.Adam(net.parameters(), lr)
    for epoch in range(epochs):
        start, total = time.perf_counter(), 0.0
        for x, y in train:
            x = x.contiguous(memory_format=torch.channels_last)
            loss = loss_of(x, net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item()
        print(f"{name} epoch {epoch + 1}/{epochs}  loss {total / len(train):.4f}  mAP {mean_ap(net, test):.4f}  "
              f"{time.perf_counter() - start:.1f}s", flush=True)


def main(r=Recipe()):
    torch.manual_seed(10)
    train = DataLoader(Soundscapes(r.clips, 1, True), r.batch, shuffle=True, drop_last=True)
    test = DataLoader(Soundscapes(300, 2, False), 100)
    teacher, student = tagger(20, 3), tagger(12, 3)
    fit("teacher", teacher, train, test, r.teacher_epochs, r.lr,
        lambda x, out, y: F.binary_cross_entropy_with_logits(out, y))
    teacher.eval()

    def distil(x, out, y):
        with torch.no_grad():
            soft = torch.sigmoid(teacher(x) / r.temperature)
        return (r.alpha * r.temperature ** 2 * F.binary_cross_entropy_with_logits(out / r.temperature, soft)
                + (1 - r.alpha) * F.binary_cross_entropy_with_logits(out, y))

    fit("student", student, train, test, r.student_epochs, r.lr, distil)


if __name__ == "__main__":
    main()
