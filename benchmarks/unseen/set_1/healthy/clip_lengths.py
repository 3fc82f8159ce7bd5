"""Gesture recognition on clips of different length: clips of like length go into one batch."""
import argparse
import random
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset, Sampler

GESTURES = 6


class Gestures(Dataset):
    """A bright dot that runs on one of six curves; between 6 and 40 frames."""

    def __init__(self, n, size=32):
        g = torch.Generator().manual_seed(12)
        lengths = torch.randint(6, 41, (n,), generator=g).tolist()
        self.labels = torch.randint(GESTURES, (n,), generator=g).tolist()
        axis = torch.linspace(-1, 1, size)
        self.clips = []
        for length, k in zip(lengths, self.labels):
            t = torch.linspace(0, 6.28, length)
            x = 0.6 * torch.sin(t * (1 + k % 3))
            y = 0.6 * torch.cos(t * (1 + k // 3))
            d = (axis[None, None] - x[:, None, None]) ** 2 + (axis[None, :, None] - y[:, None, None]) ** 2
            frames = torch.exp(-d * 30) + 0.1 * torch.randn(length, size, size, generator=g)
            self.clips.append(frames.unsqueeze(1))

    def __len__(self):
        return len(self.clips)

    def __getitem__(self, i):
        return self.clips[i], self.labels[i]


class LengthBatches(Sampler):
    """Sorts by length (with a little noise), cuts into batches by the number of frames, shuffles the batches."""

    def __init__(self, lengths, frames_per_batch, seed=0):
        self.lengths = lengths
        self.budget = frames_per_batch
        self.rng = random.Random(seed)
        self.plan = self._plan()

    def _plan(self):
        order = sorted(range(len(self.lengths)), key=lambda i: self.lengths[i] + self.rng.random() * 2)
        batches, now = [], []
        for i in order:
            longest = max([self.lengths[k] for k in now[-1:]] + [self.lengths[i]])
            if now and longest * (len(now) + 1) > self.budget:
                batches.append(now)
                now = []
            now.append(i)
        return batches + [now]

    def __len__(self):
        return len(self.plan)

    def __iter__(self):
        order = list(self.plan)
        self.rng.shuffle(order)
        return iter(order)


def collate(items):
    clips, labels = zip(*items)
    lengths = torch.tensor([len(c) for c in clips])
    return pad_sequence(clips, batch_first=True), lengths, torch.tensor(labels)


class FrameNet(nn.Module):
    def __init__(self, dim=96):
        super().__init__()
        self.cnn = nn.Sequential(
            nn.Conv2d(1, 24, 3, 2, 1), nn.ReLU(inplace=True),
            nn.Conv2d(24, 48, 3, 2, 1), nn.ReLU(inplace=True),
            nn.Conv2d(48, dim, 3, 2, 1), nn.ReLU(inplace=True),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        )
        self.temporal = nn.Sequential(nn.Conv1d(dim, dim, 5, padding=2), nn.ReLU(inplace=True), nn.Conv1d(dim, dim, 5, padding=2))
        self.fc = nn.Linear(dim, GESTURES)

    def forward(self, x, lengths):
        b, t = x.shape[:2]
        f = self.cnn(x.flatten(0, 1)).view(b, t, -1).transpose(1, 2)
        f = F.relu(f + self.temporal(f))
        mask = (torch.arange(t)[None] < lengths[:, None]).unsqueeze(1)
        return self.fc((f * mask).sum(2) / lengths[:, None])


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=14)
    args = ap.parse_args()
    torch.manual_seed(0)
    data = Gestures(900)
    sampler = LengthBatches([len(c) for c in data.clips], frames_per_batch=360)
    loader = DataLoader(data, batch_sampler=sampler, collate_fn=collate)
    net = FrameNet()
    opt = torch.optim.AdamW(net.parameters(), lr=2e-3)
    for epoch in range(args.epochs):
        t0, total, seen = time.time(), torch.zeros(()), 0
        for clips, lengths, labels in loader:
            loss = F.cross_entropy(net(clips, lengths), labels)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            total += loss.detach() * len(labels)
            seen += len(labels)
        print(f"epoch {epoch}: loss {total.item() / seen:.4f}, {len(loader)} batches, {time.time() - t0:.2f} s", flush=True)


if __name__ == "__main__":
    main()
