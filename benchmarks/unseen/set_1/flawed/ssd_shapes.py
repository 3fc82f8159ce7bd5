"""Single-shot detection of coloured shapes."""
import argparse
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

IMAGE = 64
NUM_CLASSES = 3
GRIDS = (8, 4)
RATIOS = (0.6, 1.0, 1.7)


class Shapes(Dataset):
    def __init__(self, n, seed):
        rng = np.random.default_rng(seed)
        self.items = []
        for _ in range(n):
            img = rng.normal(0, 0.15, (3, IMAGE, IMAGE)).astype(np.float32)
            boxes, classes = [], []
            for _ in range(int(rng.integers(3, 9))):
                w, h = rng.integers(8, 24, 2)
                x, y = rng.integers(0, IMAGE - w), rng.integers(0, IMAGE - h)
                c = int(rng.integers(NUM_CLASSES))
                img[c, y:y + h, x:x + w] += 1.0
                boxes.append((x, y, x + w, y + h))
                classes.append(c + 1)
            self.items.append((torch.from_numpy(img), torch.tensor(boxes, dtype=torch.float32) / IMAGE, torch.tensor(classes)))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def collate(batch):
    images, boxes, classes = zip(*batch)
    return torch.stack(images), list(boxes), list(classes)


def make_anchors():
    out = []
    for g in GRIDS:
        size = 1.6 / g
        for i in range(g):
            for j in range(g):
                for r in RATIOS:
                    w, h = size * r ** 0.5, size / r ** 0.5
                    cx, cy = (j + 0.5) / g, (i + 0.5) / g
                    out.append((cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2))
    return torch.tensor(out)


def area(b):
    return (b[..., 2] - b[..., 0]) * (b[..., 3] - b[..., 1])


def iou_with(anchors, box):
    wh = (torch.min(anchors[:, 2:], box[2:]) - torch.max(anchors[:, :2], box[:2])).clamp(min=0)  # <<
    inter = wh[:, 0] * wh[:, 1]
    return inter / (area(anchors) + area(box) - inter)


class AnchorMatcher:
    """Every anchor gets the box of its best IoU (if above the threshold); every box keeps its best anchor."""

    def __init__(self, anchors, threshold=0.45):
        self.anchors = anchors
        self.threshold = threshold

    def __call__(self, boxes):
        best = torch.zeros(len(self.anchors))
        owner = torch.zeros(len(self.anchors), dtype=torch.long)
        forced = []
        for k, box in enumerate(boxes):  # <<
            iou = iou_with(self.anchors, box)  # <<
            better = iou > best
            best = torch.where(better, iou, best)
            owner = torch.where(better, torch.full_like(owner, k), owner)  # <<
            forced.append(iou.argmax())
        positive = best > self.threshold
        for k, a in enumerate(forced):
            owner[a] = k
            positive[a] = True
        return owner, positive


class MultiBoxLoss(nn.Module):
    def __init__(self, anchors, matcher, neg_ratio=3):
        super().__init__()
        self.anchors = anchors
        self.matcher = matcher
        self.neg_ratio = neg_ratio
        self.acx = (anchors[:, :2] + anchors[:, 2:]) / 2
        self.awh = anchors[:, 2:] - anchors[:, :2]

    def encode(self, boxes):
        centre = (boxes[..., :2] + boxes[..., 2:]) / 2
        wh = boxes[..., 2:] - boxes[..., :2]
        return torch.cat([(centre - self.acx) / self.awh * 10, torch.log(wh / self.awh) * 5], -1)

    def targets(self, boxes, classes):
        loc, cls = [], []
        for b, c in zip(boxes, classes):
            owner, positive = self.matcher(b)  # <<
            loc.append(b[owner])
            cls.append(c[owner] * positive)
        return self.encode(torch.stack(loc)), torch.stack(cls)

    def forward(self, pred_loc, pred_cls, boxes, classes):
        with torch.no_grad():
            loc, cls = self.targets(boxes, classes)  # <<
        pos = cls > 0
        loc_loss = (F.smooth_l1_loss(pred_loc, loc, reduction="none").sum(-1) * pos).sum()
        ce = F.cross_entropy(pred_cls.flatten(0, 1), cls.flatten(), reduction="none").view_as(cls)
        with torch.no_grad():
            hard = ce.masked_fill(pos, -1.0)
            rank = hard.argsort(1, descending=True).argsort(1)
            neg = rank < self.neg_ratio * pos.sum(1, keepdim=True)
        return (loc_loss + (ce * (pos | neg)).sum()) / pos.sum().clamp(min=1)


class TinySSD(nn.Module):
    def __init__(self):
        super().__init__()

        def down(cin, cout):
            return nn.Sequential(nn.Conv2d(cin, cout, 3, 2, 1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True))

        self.stem = nn.Sequential(down(3, 16), down(16, 32), down(32, 48))
        self.next = down(48, 64)
        k = len(RATIOS)
        self.loc = nn.ModuleList([nn.Conv2d(48, k * 4, 3, padding=1), nn.Conv2d(64, k * 4, 3, padding=1)])
        self.cls = nn.ModuleList([nn.Conv2d(48, k * (NUM_CLASSES + 1), 3, padding=1), nn.Conv2d(64, k * (NUM_CLASSES + 1), 3, padding=1)])

    def forward(self, x):
        a = self.stem(x)
        maps = (a, self.next(a))
        loc = [h(m).permute(0, 2, 3, 1).reshape(len(x), -1, 4) for h, m in zip(self.loc, maps)]
        cls = [h(m).permute(0, 2, 3, 1).reshape(len(x), -1, NUM_CLASSES + 1) for h, m in zip(self.cls, maps)]
        return torch.cat(loc, 1), torch.cat(cls, 1)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=20)
    ap.add_argument("--batch-size", type=int, default=32)
    opts = ap.parse_args()
    torch.manual_seed(0)
    data = Shapes(1600, seed=5)
    loader = DataLoader(data, opts.batch_size, shuffle=True, collate_fn=collate)
    anchors = make_anchors()
    model = TinySSD()
    criterion = MultiBoxLoss(anchors, AnchorMatcher(anchors))
    opt = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    for epoch in range(opts.epochs):
        tic, losses = time.time(), []
        for images, boxes, classes in loader:
            loc, cls = model(images)
            loss = criterion(loc, cls, boxes, classes)
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses.append(loss.detach())
        print(f"epoch {epoch}: {torch.stack(losses).mean().item():.3f} ({time.time() - tic:.2f} s)", flush=True)


if __name__ == "__main__":
    main()
