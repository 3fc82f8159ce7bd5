"""Pixel-wise detection of cracks in concrete, coarse output at a quarter of the resolution."""
import sys
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIZE, OUT = 96, 24


class Concrete(Dataset):
    def __init__(self, n, seed):
        rng = np.random.default_rng(seed)
        self.images = np.empty((n, SIZE, SIZE), np.uint8)
        self.masks = np.zeros((n, OUT, OUT), np.uint8)
        for i in range(n):
            img = rng.normal(150, 18, (SIZE, SIZE))
            if rng.random() < 0.8:
                y = rng.uniform(10, SIZE - 10) + np.cumsum(rng.normal(0, 1.2, SIZE))
                y = np.clip(y, 0, SIZE - 1).astype(int)
                cols = np.arange(rng.integers(0, 30), rng.integers(60, SIZE))
                img[y[cols], cols] -= 60
                self.masks[i, y[cols] * OUT // SIZE, cols * OUT // SIZE] = 1
            self.images[i] = np.clip(img, 0, 255)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        img, mask = self.images[i], self.masks[i]
        k = int(torch.randint(4, (1,)))
        img, mask = np.rot90(img, k).copy(), np.rot90(mask, k).copy()
        return torch.from_numpy(img)[None].float() / 64 - 2.3, torch.from_numpy(mask).float()


class CrackNet(nn.Module):
    def __init__(self, w=24):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, w, 3, 2, 1), nn.ReLU(inplace=True),
            nn.Conv2d(w, w, 3, 1, 1), nn.ReLU(inplace=True),
            nn.Conv2d(w, 2 * w, 3, 2, 1), nn.ReLU(inplace=True),
            nn.Conv2d(2 * w, 2 * w, 3, 1, 1), nn.ReLU(inplace=True),
            nn.Conv2d(2 * w, 1, 1))

    def forward(self, x):
        return self.layers(x).squeeze(1)


class RunningAUC:
    """Area under the ROC curve of all pixels since reset()."""

    def __init__(self):
        self.reset()

    def reset(self):
        self.scores, self.labels = [], []

    def update(self, scores, labels):
        self.scores.append(scores.detach().flatten().numpy())
        self.labels.append(labels.flatten().numpy())

    def value(self):
        scores, labels = np.concatenate(self.scores), np.concatenate(self.labels)
        order = np.argsort(scores)  # <<
        ranks = np.empty(len(scores))
        ranks[order] = np.arange(1, len(scores) + 1)
        pos = labels.sum()
        neg = len(labels) - pos
        return (ranks[labels > 0.5].sum() - pos * (pos + 1) / 2) / max(pos * neg, 1)


class Callback:
    def on_epoch_start(self, run): ...
    def on_step_end(self, run): ...
    def on_epoch_end(self, run): ...


class LossMeter(Callback):
    def on_epoch_start(self, run):
        self.total, self.n = 0.0, 0

    def on_step_end(self, run):
        self.total += run.loss.item()
        self.n += 1
        run.status["loss"] = self.total / self.n


class AUCMeter(Callback):
    def __init__(self):
        self.auc = RunningAUC()

    def on_epoch_start(self, run):
        self.auc.reset()

    def on_step_end(self, run):
        self.auc.update(run.logits, run.target)
        run.status["auc"] = self.auc.value()  # <<

    def on_epoch_end(self, run):
        run.status["auc"] = self.auc.value()


class Console(Callback):
    def __init__(self, every=25):
        self.every = every

    def line(self, run):
        return "  ".join(f"{k} {v:.4f}" for k, v in run.status.items())

    def on_epoch_start(self, run):
        self.t0 = time.time()

    def on_step_end(self, run):
        if run.step % self.every == 0:
            sys.stdout.write(f"  [{run.epoch}] {run.step}/{len(run.loader)}  {self.line(run)}\n")

    def on_epoch_end(self, run):
        sys.stdout.write(f"epoch {run.epoch}  {self.line(run)}  {time.time() - self.t0:.1f}s\n")
        sys.stdout.flush()


class Run:
    def __init__(self, model, loader, opt, callbacks):
        self.model, self.loader, self.opt, self.callbacks = model, loader, opt, callbacks
        self.status = {}

    def emit(self, event):
        for cb in self.callbacks:
            getattr(cb, event)(self)  # <<

    def fit(self, epochs):
        lossfn = nn.BCEWithLogitsLoss(pos_weight=torch.tensor(8.0))
        for self.epoch in range(epochs):
            self.emit("on_epoch_start")
            for self.step, (image, self.target) in enumerate(self.loader, 1):
                self.logits = self.model(image.to(memory_format=torch.channels_last))
                self.loss = lossfn(self.logits, self.target)
                self.opt.zero_grad()
                self.loss.backward()
                self.opt.step()
                self.emit("on_step_end")
            self.emit("on_epoch_end")


if __name__ == "__main__":
    torch.manual_seed(9)
    loader = DataLoader(Concrete(2000, seed=9), batch_size=16, shuffle=True, drop_last=True)
    model = CrackNet().to(memory_format=torch.channels_last)
    Run(model, loader, torch.optim.AdamW(model.parameters(), 2e-3), [LossMeter(), AUCMeter(), Console()]).fit(3)
