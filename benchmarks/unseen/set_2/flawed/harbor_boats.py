"""One-stage detector for boats in harbour images, anchors matched by overlap."""
import logging
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
log = logging.getLogger("boats")

IMAGE = 96
CELLS = 12
SHAPES = [(10, 10), (20, 9), (9, 20)]


def make_anchors():
    boxes = []
    stride = IMAGE / CELLS
    for r in range(CELLS):
        for c in range(CELLS):
            for w, h in SHAPES:
                cx, cy = (c + 0.5) * stride, (r + 0.5) * stride
                boxes.append([cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2])
    return torch.tensor(boxes)


class Harbor(Dataset):
    def __init__(self, n=1500, seed=2):
        rng = np.random.default_rng(seed)
        self.images = rng.integers(20, 70, (n, 1, IMAGE, IMAGE), dtype=np.uint8)
        self.boxes = []
        for i in range(n):
            boxes = []
            for _ in range(rng.integers(2, 6)):
                w, h = SHAPES[rng.integers(3)]
                w, h = w + rng.integers(-2, 3), h + rng.integers(-2, 3)
                x, y = rng.integers(0, IMAGE - w), rng.integers(0, IMAGE - h)
                self.images[i, 0, y:y + h, x:x + w] = rng.integers(120, 250)
                boxes.append([x, y, x + w, y + h])
            self.boxes.append(torch.tensor(boxes, dtype=torch.float32))

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        return torch.from_numpy(self.images[i]).float().div(127.5).sub(1), self.boxes[i]


def collate(items):
    images, boxes = zip(*items)
    return torch.stack(images), list(boxes)


def iou(a, b):
    w = min(a[2], b[2]) - max(a[0], b[0])
    h = min(a[3], b[3]) - max(a[1], b[1])
    if w <= 0 or h <= 0:
        return 0.0
    inter = w * h
    return inter / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - inter)


class Matcher:
    """Assigns to each anchor the ground-truth box that it overlaps most, or -1."""

    def __init__(self, anchors, threshold=0.45):
        self.anchors = anchors
        self.threshold = threshold

    def __call__(self, boxes):
        overlaps = torch.zeros(len(self.anchors), len(boxes))
        for i, a in enumerate(self.anchors.tolist()):
            for j, b in enumerate(boxes.tolist()):  # <<
                overlaps[i, j] = iou(a, b)  # <<
        best, which = overlaps.max(1)
        which[best < self.threshold] = -1
        return which


def encode(anchors, boxes):
    aw, ah = anchors[:, 2] - anchors[:, 0], anchors[:, 3] - anchors[:, 1]
    dx = ((boxes[:, 0] + boxes[:, 2]) - (anchors[:, 0] + anchors[:, 2])) / 2 / aw
    dy = ((boxes[:, 1] + boxes[:, 3]) - (anchors[:, 1] + anchors[:, 3])) / 2 / ah
    return torch.stack([dx, dy, ((boxes[:, 2] - boxes[:, 0]) / aw).log(),
                        ((boxes[:, 3] - boxes[:, 1]) / ah).log()], 1)


class DetectionLoss(nn.Module):
    def __init__(self, anchors):
        super().__init__()
        self.anchors = anchors
        self.match = Matcher(anchors)

    def forward(self, scores, deltas, boxes_list):
        obj = torch.zeros_like(scores)
        reg, positives = scores.new_zeros(()), 0
        for b, boxes in enumerate(boxes_list):
            which = self.match(boxes)  # <<
            pos = which >= 0
            obj[b, pos] = 1.0
            if pos.any():
                target = encode(self.anchors[pos], boxes[which[pos]])
                reg = reg + F.smooth_l1_loss(deltas[b, pos], target, reduction="sum")
                positives += int(pos.sum())
        cls = F.binary_cross_entropy_with_logits(scores, obj, pos_weight=torch.tensor(10.0))
        return cls + reg / max(positives, 1)


class BoatNet(nn.Module):
    def __init__(self, w=32):
        super().__init__()
        def stage(i, o):
            return nn.Sequential(nn.Conv2d(i, o, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(),
                                 nn.Conv2d(o, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU())
        self.body = nn.Sequential(stage(1, w // 2), stage(w // 2, w), stage(w, 2 * w))
        self.head = nn.Conv2d(2 * w, 5 * len(SHAPES), 1)

    def forward(self, x):
        out = self.head(self.body(x)).permute(0, 2, 3, 1).reshape(len(x), -1, 5)
        return out[..., 0], out[..., 1:]


def main(epochs=2, batch_size=8):
    torch.manual_seed(2)
    loader = DataLoader(Harbor(), batch_size, shuffle=True, collate_fn=collate, drop_last=True)
    net = BoatNet().to(memory_format=torch.channels_last)
    criterion = DetectionLoss(make_anchors())
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    for epoch in range(epochs):
        t0, total = time.time(), 0.0
        for i, (images, boxes) in enumerate(loader, 1):
            scores, deltas = net(images.to(memory_format=torch.channels_last))
            loss = criterion(scores, deltas, boxes)
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item()
            if i % 50 == 0:
                log.info("epoch %d  %d/%d  loss %.4f", epoch, i, len(loader), total / i)
        log.info("epoch %d done in %.1f s", epoch, time.time() - t0)


if __name__ == "__main__":
    main()
