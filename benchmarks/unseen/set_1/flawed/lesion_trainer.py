"""Lesion segmentation on 2D slices. Trainer with callbacks; shows the voxel-wise ROC AUC while training."""
import argparse
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


# ------------------------------------------------------------------ metrics
class Metric:
    def reset(self):
        raise NotImplementedError

    def update(self, logits, target):
        raise NotImplementedError

    def compute(self):
        raise NotImplementedError


class Dice(Metric):
    def reset(self):
        self.inter = self.total = 0.0

    def update(self, logits, target):
        pred = (logits > 0).float()
        self.inter += (pred * target).sum().item()
        self.total += (pred.sum() + target.sum()).item()

    def compute(self):
        return 2 * self.inter / max(self.total, 1.0)


class VoxelAUC(Metric):
    """Area under the ROC curve by ranks (Mann-Whitney)."""

    def reset(self):
        self.scores, self.labels = [], []

    def update(self, logits, target):
        self.scores.append(logits.flatten().numpy())
        self.labels.append(target.flatten().numpy() > 0.5)

    def compute(self):
        scores = np.concatenate(self.scores)  # <<
        labels = np.concatenate(self.labels)
        order = np.argsort(scores)  # <<
        ranks = np.empty(len(scores))
        ranks[order] = np.arange(1, len(scores) + 1)  # <<
        pos = int(labels.sum())
        neg = len(labels) - pos
        if pos == 0 or neg == 0:
            return float("nan")
        return float((ranks[labels].sum() - pos * (pos + 1) / 2) / (pos * neg))  # <<


# ------------------------------------------------------------------ callbacks
class Callback:
    def on_epoch_begin(self, trainer):
        pass

    def on_step_end(self, trainer, step, logits, target):
        pass

    def on_epoch_end(self, trainer):
        pass


class Metrics(Callback):
    def __init__(self, **metrics):
        self.metrics = metrics

    def on_epoch_begin(self, trainer):
        for m in self.metrics.values():
            m.reset()

    def on_step_end(self, trainer, step, logits, target):
        for name, m in self.metrics.items():
            m.update(logits, target)
            trainer.status[name] = m.compute()  # <<

    def on_epoch_end(self, trainer):
        pass


class Printer(Callback):
    def on_epoch_begin(self, trainer):
        self.t = time.perf_counter()

    def on_epoch_end(self, trainer):
        values = "  ".join(f"{k} {v:.4f}" for k, v in trainer.status.items())
        print(f"epoch {trainer.epoch}  {values}  ({time.perf_counter() - self.t:.2f} s)", flush=True)


# ------------------------------------------------------------------ trainer
class Trainer:
    def __init__(self, net, optimizer, loss_fn, callbacks):
        self.net, self.optimizer, self.loss_fn = net, optimizer, loss_fn
        self.callbacks = callbacks
        self.status = {}
        self.epoch = 0

    def fire(self, event, *args):
        for cb in self.callbacks:
            getattr(cb, event)(self, *args)

    def training_step(self, image, target):
        logits = self.net(image)
        loss = self.loss_fn(logits, target)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        return logits.detach(), loss.detach()

    def fit(self, loader, epochs):
        for self.epoch in range(epochs):
            self.net.train()
            self.fire("on_epoch_begin")
            total = 0.0
            for step, (image, target) in enumerate(loader):
                logits, loss = self.training_step(image, target)
                total += loss
                self.fire("on_step_end", step, logits, target)  # <<
            self.status["loss"] = float(total) / len(loader)
            self.fire("on_epoch_end")


# ------------------------------------------------------------------ model and data
class SegNet(nn.Module):
    def __init__(self, w=16):
        super().__init__()
        self.down1 = self.conv(1, w)
        self.down2 = self.conv(w, 2 * w)
        self.bottom = self.conv(2 * w, 2 * w)
        self.up2 = self.conv(4 * w, w)
        self.up1 = self.conv(2 * w, w)
        self.out = nn.Conv2d(w, 1, 1)

    @staticmethod
    def conv(cin, cout):
        return nn.Sequential(nn.Conv2d(cin, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True))

    def forward(self, x):
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        c = self.bottom(F.max_pool2d(b, 2))
        y = self.up2(torch.cat([F.interpolate(c, scale_factor=2), b], 1))
        y = self.up1(torch.cat([F.interpolate(y, scale_factor=2), a], 1))
        return self.out(y)


def slices(n, size):
    rng = np.random.default_rng(8)
    yy, xx = np.mgrid[:size, :size]
    image = rng.normal(0, 1, (n, 1, size, size)).astype(np.float32)
    mask = np.zeros((n, 1, size, size), np.float32)
    for i in range(n):
        for _ in range(rng.integers(1, 4)):
            cy, cx, r = rng.uniform(6, size - 6), rng.uniform(6, size - 6), rng.uniform(2, 6)
            mask[i, 0][(yy - cy) ** 2 + (xx - cx) ** 2 < r * r] = 1
    image += 0.9 * mask
    return torch.from_numpy(image), torch.from_numpy(mask)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=24)
    ap.add_argument("--batch-size", type=int, default=6)
    ap.add_argument("--size", type=int, default=48)
    args = ap.parse_args()
    torch.manual_seed(0)
    loader = DataLoader(TensorDataset(*slices(360, args.size)), batch_size=args.batch_size, shuffle=True)
    net = SegNet()
    trainer = Trainer(
        net,
        torch.optim.AdamW(net.parameters(), lr=1e-3),
        nn.BCEWithLogitsLoss(),
        [Metrics(dice=Dice(), auc=VoxelAUC()), Printer()],
    )
    trainer.fit(loader, args.epochs)


if __name__ == "__main__":
    main()
