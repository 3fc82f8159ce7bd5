"""Frame-wise phone recogniser (TDNN) with callbacks, synthetic speech features."""
import argparse
import time
from itertools import groupby

import torch
import torch.nn as nn
import torch.nn.functional as F

PHONES = 40
FEATS = 40


# ---- data ------------------------------------------------------------------
def utterances(n, frames, seed):
    g = torch.Generator().manual_seed(seed)
    means = torch.randn(PHONES, FEATS, generator=g)
    switch = (torch.rand(n, frames, generator=g) < 0.45).long().cumsum(1)
    spoken = torch.randint(0, PHONES, (n, frames + 1), generator=g)
    labels = spoken.gather(1, switch)
    feats = means[labels] + 1.2 * torch.randn(n, frames, FEATS, generator=g)
    return feats.transpose(1, 2).contiguous(), labels


# ---- scoring ---------------------------------------------------------------
def collapse(frames):
    return [k for k, _ in groupby(frames)]


def edit_distance(ref, hyp):
    row = list(range(len(hyp) + 1))
    for i, r in enumerate(ref, 1):
        previous, row[0] = row[0], i
        for j, h in enumerate(hyp, 1):  # <<
            current = row[j]
            row[j] = min(row[j] + 1, row[j - 1] + 1, previous + (r != h))  # <<
            previous = current
    return row[-1]


class PhoneErrorRate:
    def __init__(self, smoothing=0.95):
        self.smoothing = smoothing
        self.value = None

    def add(self, logits, labels):
        hyps = logits.argmax(1).tolist()
        refs = labels.tolist()
        errors = total = 0
        for ref, hyp in zip(refs, hyps):
            ref, hyp = collapse(ref), collapse(hyp)
            errors += edit_distance(ref, hyp)  # <<
            total += len(ref)
        rate = errors / total
        self.value = rate if self.value is None else (
            self.smoothing * self.value + (1 - self.smoothing) * rate)


# ---- callbacks -------------------------------------------------------------
class Callback:
    def on_epoch_start(self, loop):
        pass

    def on_batch_end(self, loop):
        pass

    def on_epoch_end(self, loop):
        pass


class Clock(Callback):
    def on_epoch_start(self, loop):
        self.t0 = time.time()

    def on_epoch_end(self, loop):
        loop.report["seconds"] = time.time() - self.t0


class RunningLoss(Callback):
    def on_epoch_start(self, loop):
        self.total, self.n = torch.zeros(()), 0

    def on_batch_end(self, loop):
        self.total += loop.loss.detach()
        self.n += 1

    def on_epoch_end(self, loop):
        loop.report["loss"] = self.total.item() / self.n


class Scores(Callback):
    def __init__(self, meter):
        self.meter = meter

    def on_batch_end(self, loop):
        self.meter.add(loop.logits.detach(), loop.labels)  # <<

    def on_epoch_end(self, loop):
        loop.report["per"] = self.meter.value


class Printer(Callback):
    def on_epoch_end(self, loop):
        print(loop.epoch, {k: round(v, 4) for k, v in loop.report.items()}, flush=True)


# ---- model and loop --------------------------------------------------------
class TDNN(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        spec = [(FEATS, 5, 1), (width, 3, 2), (width, 3, 3)]
        self.layers = nn.ModuleList(
            nn.Conv1d(c, width, k, dilation=d, padding=d * (k // 2)) for c, k, d in spec)
        self.norms = nn.ModuleList(nn.BatchNorm1d(width) for _ in spec)
        self.out = nn.Conv1d(width, PHONES, 1)

    def forward(self, x):
        for conv, norm in zip(self.layers, self.norms):
            x = norm(F.relu(conv(x)))
        return self.out(x)


class Loop:
    def __init__(self, model, optimizer, callbacks):
        self.model, self.optimizer, self.callbacks = model, optimizer, callbacks
        self.report, self.epoch, self.step = {}, 0, 0

    def call(self, hook):
        for c in self.callbacks:
            getattr(c, hook)(self)  # <<

    def run(self, feats, labels, epochs, batch, g):
        for self.epoch in range(epochs):
            self.call("on_epoch_start")
            for idx in torch.randperm(len(feats), generator=g).split(batch):
                self.labels = labels[idx]
                self.logits = self.model(feats[idx])
                self.loss = F.cross_entropy(self.logits, self.labels)
                self.optimizer.zero_grad(set_to_none=True)
                self.loss.backward()
                self.optimizer.step()
                self.call("on_batch_end")  # <<
                self.step += 1
            self.call("on_epoch_end")


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=13)
    args = ap.parse_args()
    torch.manual_seed(6)
    feats, labels = utterances(800, 200, seed=6)
    model = TDNN()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    loop = Loop(model, optimizer, [Clock(), RunningLoss(), Scores(PhoneErrorRate()), Printer()])
    loop.run(feats, labels, args.epochs, 16, torch.Generator().manual_seed(7))
