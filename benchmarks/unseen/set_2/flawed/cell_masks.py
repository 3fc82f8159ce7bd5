# Segmenting touching cells with the border-weighted loss of the original U-Net paper.
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

SIZE = 64
N_TRAIN = 1200
EPOCHS = 4
BATCH = 16


def draw_culture(rng):
    """One micrograph and its instance labels (0 = background)."""
    yy, xx = np.mgrid[:SIZE, :SIZE]
    labels = np.zeros((SIZE, SIZE), np.int16)
    for k in range(1, rng.integers(5, 9)):
        cy, cx = rng.uniform(6, SIZE - 6, 2)
        a, b = rng.uniform(5, 10, 2)
        inside = ((yy - cy) / a) ** 2 + ((xx - cx) / b) ** 2 < 1
        labels[inside & (labels == 0)] = k
    img = 0.2 + 0.5 * (labels > 0) + 0.02 * labels
    img = img + rng.normal(0, 0.12, img.shape)
    return img.astype(np.float32), labels


def outline(cell):
    inner = cell.copy()
    inner[1:] &= cell[:-1]
    inner[:-1] &= cell[1:]
    inner[:, 1:] &= cell[:, :-1]
    inner[:, :-1] &= cell[:, 1:]
    return np.argwhere(cell & ~inner)


def border_weights(labels, w0=8.0, sigma=4.0):
    """w0 * exp(-(d1 + d2)^2 / 2 sigma^2) on the background, d1 and d2 the distances to the two nearest cells."""
    grid = np.argwhere(np.ones_like(labels, dtype=bool)).astype(np.float32)
    dists = []
    for k in np.unique(labels)[1:]:
        pts = outline(labels == k).astype(np.float32)
        d2 = ((grid[:, None, :] - pts[None]) ** 2).sum(-1)  # <<
        dists.append(np.sqrt(d2.min(1)))
    weights = np.ones(labels.shape, np.float32)
    if len(dists) > 1:
        d = np.sort(np.stack(dists), axis=0)[:2].sum(0).reshape(labels.shape)
        weights += np.where(labels == 0, w0 * np.exp(-d ** 2 / (2 * sigma ** 2)), 0).astype(np.float32)
    return weights


class Cultures(Dataset):
    def __init__(self, n, seed):
        rng = np.random.default_rng(seed)
        self.pairs = [draw_culture(rng) for _ in range(n)]

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, i):
        img, labels = self.pairs[i]
        weights = border_weights(labels)  # <<
        stack = np.stack([img, (labels > 0).astype(np.float32), weights])
        if torch.rand(1) < 0.5:
            stack = stack[:, ::-1]
        if torch.rand(1) < 0.5:
            stack = stack[:, :, ::-1]
        stack = torch.from_numpy(stack.copy())
        return stack[:1], stack[1], stack[2]


def block(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True),
                         nn.Conv2d(o, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True))


class SmallUNet(nn.Module):
    def __init__(self, c=8):
        super().__init__()
        self.a, self.b, self.c = block(1, c), block(c, 2 * c), block(2 * c, 4 * c)
        self.ub, self.ua = block(6 * c, 2 * c), block(3 * c, c)
        self.head = nn.Conv2d(c, 1, 1)

    def forward(self, x):
        a = self.a(x)
        b = self.b(F.max_pool2d(a, 2))
        c = self.c(F.max_pool2d(b, 2))
        b = self.ub(torch.cat([F.interpolate(c, scale_factor=2), b], 1))
        a = self.ua(torch.cat([F.interpolate(b, scale_factor=2), a], 1))
        return self.head(a).squeeze(1)


if __name__ == "__main__":
    torch.manual_seed(3)
    loader = DataLoader(Cultures(N_TRAIN, seed=3), BATCH, shuffle=True, drop_last=True)
    model = SmallUNet().to(memory_format=torch.channels_last)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(EPOCHS):
        t0 = time.perf_counter()
        running = inter = union = 0.0
        for img, mask, weights in loader:
            logits = model(img.to(memory_format=torch.channels_last))
            loss = (F.binary_cross_entropy_with_logits(logits, mask, reduction="none") * weights).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            running += loss.item()
            pred = logits.detach() > 0
            inter += float((pred & (mask > 0.5)).sum())
            union += float((pred | (mask > 0.5)).sum())
        print(f"[{epoch + 1}/{EPOCHS}] weighted bce {running / len(loader):.3f}  iou {inter / union:.3f}"
              f"  {time.perf_counter() - t0:.1f}s")
