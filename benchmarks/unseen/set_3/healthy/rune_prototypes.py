"""Prototypical networks on carved runes: 8-way 3-shot episodes."""
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Sampler, TensorDataset

WAY, SHOT, QUERY = 8, 3, 7


def carve(classes, per_class, seed, side=28):
    g = torch.Generator().manual_seed(seed)
    ax = torch.arange(float(side))
    grid = torch.stack(torch.meshgrid(ax, ax, indexing="ij"), -1)
    ends = torch.rand(classes, 4, 2, 2, generator=g) * (side - 8) + 4
    y = torch.arange(classes).repeat_interleave(per_class)
    img = torch.zeros(len(y), side, side)
    for k in range(4):
        p = ends[y, k] + 1.2 * torch.randn(len(y), 2, 2, generator=g)
        a, b = p[:, None, None, 0], p[:, None, None, 1]
        d = b - a
        t = (((grid - a) * d).sum(-1) / d.square().sum(-1).clamp(min=1e-3)).clamp(0, 1)
        gap = (grid - a - t.unsqueeze(-1) * d).norm(dim=-1)
        img = torch.maximum(img, torch.exp(-gap.square() / 2))
    return img.unsqueeze(1) + 0.1 * torch.randn(len(y), 1, side, side, generator=g), y


class Episodes(Sampler):
    def __init__(self, y, episodes):
        self.by_class = [torch.nonzero(y == c).flatten() for c in range(int(y.max()) + 1)]
        self.episodes = episodes

    def __len__(self):
        return self.episodes

    def __iter__(self):
        for _ in range(self.episodes):
            batch = []
            for c in torch.randperm(len(self.by_class))[:WAY].tolist():
                pool = self.by_class[c]
                batch.extend(pool[torch.randperm(len(pool))[:SHOT + QUERY]].tolist())
            yield batch


def nhwc(images):
    return images.contiguous(memory_format=torch.channels_last)


class Encoder(nn.Sequential):
    def __init__(self, width=48):
        layers, last = [], 1
        for _ in range(4):
            layers += [nn.Conv2d(last, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(True), nn.MaxPool2d(2)]
            last = width
        super().__init__(*layers, nn.Flatten())


def episode_logits(encoder, images):
    z = encoder(nhwc(images)).view(WAY, SHOT + QUERY, -1)
    proto = z[:, :SHOT].mean(1)
    query = z[:, SHOT:].flatten(0, 1)
    return -torch.cdist(query, proto).square()


def main():
    torch.manual_seed(0)
    x, y = carve(120, 20, 1)
    xt, yt = carve(30, 20, 2)
    train = DataLoader(TensorDataset(x, y), batch_sampler=Episodes(y, 150))
    test = DataLoader(TensorDataset(xt, yt), batch_sampler=Episodes(yt, 25))
    encoder = Encoder().to(memory_format=torch.channels_last)
    opt = torch.optim.Adam(encoder.parameters(), lr=1e-3)
    target = torch.arange(WAY).repeat_interleave(QUERY)
    for epoch in range(4):
        t0, hits = time.time(), 0
        encoder.train()
        for i, (images, _) in enumerate(train, 1):
            logits = episode_logits(encoder, images)
            loss = F.cross_entropy(logits, target)
            opt.zero_grad()
            loss.backward()
            opt.step()
            hits += (logits.argmax(1) == target).sum().item()
            if i % 50 == 0:
                print(f"epoch {epoch} episode {i} loss {loss.item():.3f} acc {hits / (i * len(target)):.3f}", flush=True)
        encoder.eval()
        with torch.no_grad():
            acc = sum((episode_logits(encoder, im).argmax(1) == target).float().mean().item() for im, _ in test) / len(test)
        print(f"epoch {epoch} unseen runes {acc:.3f} {time.time() - t0:.1f}s", flush=True)


if __name__ == "__main__":
    main()
