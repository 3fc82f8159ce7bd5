"""Anchor-free product detector for shelf photos.

Photos lie as JPEGs on disk (as the phones of the store staff deliver them), boxes in memory.
"""
import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from PIL import Image, ImageDraw
from torch.utils.data import DataLoader, Dataset

PHOTO = (1280, 960)
INPUT = (160, 120)
STRIDE = 8
COLOURS = [(210, 40, 40), (40, 160, 60), (50, 80, 210), (230, 190, 30)]


def shoot_photos(folder, count, seed):
    rng = np.random.default_rng(seed)
    entries = []
    for i in range(count):
        wall = rng.integers(70, 180, (24, 32, 3), dtype=np.uint8)
        img = Image.fromarray(wall).resize(PHOTO, Image.BILINEAR)
        pen = ImageDraw.Draw(img)
        boxes = []
        for _ in range(rng.integers(2, 7)):
            w, h = rng.integers(120, 300, 2)
            x, y = rng.integers(0, PHOTO[0] - w), rng.integers(0, PHOTO[1] - h)
            c = int(rng.integers(len(COLOURS)))
            pen.rectangle([int(x), int(y), int(x + w), int(y + h)], fill=COLOURS[c], outline=(20, 20, 20), width=6)
            boxes.append((x, y, w, h, c))
        path = folder / f"shelf_{i:05d}.jpg"
        img.save(path, quality=88)
        entries.append((path, np.array(boxes, dtype=np.float32)))
    return entries


class ShelfPhotos(Dataset):
    def __init__(self, entries, train=True):
        self.entries = entries
        self.train = train

    def __len__(self):
        return len(self.entries)

    def load(self, path):
        img = Image.open(path).convert("RGB")  # <<
        return np.asarray(img.resize(INPUT, Image.BILINEAR))  # <<

    def __getitem__(self, i):
        path, boxes = self.entries[i]
        img = self.load(path)  # <<
        boxes = boxes * np.array([INPUT[0] / PHOTO[0], INPUT[1] / PHOTO[1]] * 2 + [1.0], dtype=np.float32)
        if self.train:
            if torch.rand(1) < 0.5:
                img = img[:, ::-1]
                boxes = boxes.copy()
                boxes[:, 0] = INPUT[0] - boxes[:, 0] - boxes[:, 2]
            img = np.clip(img * float(torch.empty(1).uniform_(0.7, 1.3)), 0, 255)
        x = torch.from_numpy(np.ascontiguousarray(img, dtype=np.float32)).permute(2, 0, 1) / 127.5 - 1
        return x, self.targets(boxes)

    def targets(self, boxes):
        gh, gw = INPUT[1] // STRIDE, INPUT[0] // STRIDE
        target = torch.zeros(len(COLOURS) + 4, gh, gw)
        for x, y, w, h, c in boxes:
            cx, cy = (x + w / 2) / STRIDE, (y + h / 2) / STRIDE
            gx, gy = min(int(cx), gw - 1), min(int(cy), gh - 1)
            target[int(c), gy, gx] = 1
            target[len(COLOURS):, gy, gx] = torch.tensor([cx - gx, cy - gy, w / INPUT[0], h / INPUT[1]])
        return target


class ShelfNet(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        def conv(i, o, s):
            return nn.Sequential(nn.Conv2d(i, o, 3, s, 1, bias=False), nn.BatchNorm2d(o), nn.SiLU())
        self.trunk = nn.Sequential(conv(3, width, 2), conv(width, width * 2, 2), conv(width * 2, width * 2, 1),
                                   conv(width * 2, width * 4, 2), conv(width * 4, width * 4, 1))
        self.head = nn.Conv2d(width * 4, len(COLOURS) + 4, 1)

    def forward(self, x):
        return self.head(self.trunk(x))


def detection_loss(out, target):
    k = len(COLOURS)
    heat = F.binary_cross_entropy_with_logits(out[:, :k], target[:, :k], pos_weight=torch.tensor(20.0))
    mask = target[:, :k].amax(1, keepdim=True)
    box = (F.l1_loss(out[:, k:].sigmoid(), target[:, k:], reduction="none") * mask).sum() / mask.sum().clamp(min=1)
    return heat + box


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--photos", type=int, default=480)
    ap.add_argument("--epochs", type=int, default=6)
    ap.add_argument("--batch-size", type=int, default=16)
    opt = ap.parse_args()
    torch.manual_seed(3)
    folder = tempfile.TemporaryDirectory(prefix="shelf_products_")
    entries = shoot_photos(Path(folder.name), opt.photos, seed=3)
    print(f"{len(entries)} photos ready")
    loader = DataLoader(ShelfPhotos(entries), opt.batch_size, shuffle=True, drop_last=True)
    net = ShelfNet().to(memory_format=torch.channels_last)
    optim = torch.optim.AdamW(net.parameters(), lr=2e-3)
    for epoch in range(opt.epochs):
        t = time.time()
        losses = []
        for i, (x, target) in enumerate(loader):
            loss = detection_loss(net(x.contiguous(memory_format=torch.channels_last)), target)
            optim.zero_grad()
            loss.backward()
            optim.step()
            losses.append(loss.item())
            if (i + 1) % 10 == 0:
                print(f"  {i + 1:3d}/{len(loader)}  {np.mean(losses[-10:]):.4f}")
        print(f"epoch {epoch}: {np.mean(losses):.4f}  {time.time() - t:.1f}s")


if __name__ == "__main__":
    main()
