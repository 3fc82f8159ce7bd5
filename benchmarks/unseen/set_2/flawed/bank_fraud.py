"""Card fraud scoring. A feature-tokenizing transformer on transactions, trained with a class-balanced loss.

A small Trainer with callbacks, in the manner of our internal toolkit.
"""
import time

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


def transactions(n, seed):
    g = np.random.default_rng(seed)
    amount = g.lognormal(3.2, 1.1, n)
    hour = g.integers(0, 24, n)
    merchant = g.integers(0, 40, n)
    country = g.integers(0, 30, n)
    velocity = g.poisson(1.5, n)
    other = g.standard_normal((n, 8))
    z = (0.7 * np.log(amount) + 0.5 * velocity - 0.1 * np.abs(hour - 13) + 0.8 * (country > 24)
         + 0.6 * other[:, 0] * other[:, 1] - 5.6)
    y = (g.random(n) < 1 / (1 + np.exp(-z))).astype(np.float32)
    num = np.column_stack([np.log1p(amount), np.sin(hour / 3.82), np.cos(hour / 3.82), velocity, other])
    cat = np.column_stack([merchant, country])
    return torch.tensor(num, dtype=torch.float32), torch.tensor(cat), torch.from_numpy(y)


class FTTransformer(nn.Module):
    def __init__(self, n_num, cards, d=32, depth=2, heads=4):
        super().__init__()
        self.w = nn.Parameter(torch.randn(n_num, d) * 0.1)
        self.b = nn.Parameter(torch.zeros(n_num, d))
        self.emb = nn.ModuleList(nn.Embedding(c, d) for c in cards)
        self.cls = nn.Parameter(torch.zeros(1, 1, d))
        self.enc = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(d, heads, 2 * d, dropout=0.0, batch_first=True, norm_first=True), depth,
            enable_nested_tensor=False)
        self.out = nn.Linear(d, 1)

    def forward(self, num, cat):
        toks = [self.cls.expand(len(num), -1, -1), num[..., None] * self.w + self.b]
        toks += [e(cat[:, i])[:, None] for i, e in enumerate(self.emb)]
        return self.out(self.enc(torch.cat(toks, 1))[:, 0]).squeeze(1)


def roc_auc(scores, labels):
    """Mann-Whitney form with midranks for ties."""
    order = np.argsort(scores, kind="mergesort")  # <<
    s = scores[order]
    _, inverse, counts = np.unique(s, return_inverse=True, return_counts=True)  # <<
    ends = np.cumsum(counts)
    ranks = np.empty(len(s))
    ranks[order] = (ends - (counts - 1) / 2)[inverse]
    n1 = labels.sum()
    n0 = len(labels) - n1
    return (ranks[labels > 0.5].sum() - n1 * (n1 + 1) / 2) / max(n1 * n0, 1)


class Callback:
    def on_epoch_begin(self, trainer): ...
    def on_batch_end(self, trainer, loss, logits, y): ...
    def on_epoch_end(self, trainer): ...


class LossMeter(Callback):
    def on_epoch_begin(self, trainer):
        self.sum = self.n = 0

    def on_batch_end(self, trainer, loss, logits, y):
        self.sum += loss.item()
        self.n += 1
        trainer.state["loss"] = self.sum / self.n


class AucMeter(Callback):
    def on_epoch_begin(self, trainer):
        self.scores, self.labels = [], []

    def on_batch_end(self, trainer, loss, logits, y):
        self.scores.append(torch.sigmoid(logits.detach()).numpy())
        self.labels.append(y.numpy())
        trainer.state["auc"] = roc_auc(np.concatenate(self.scores), np.concatenate(self.labels))  # <<


class Progress(Callback):
    def on_epoch_begin(self, trainer):
        self.t0 = time.time()

    def on_epoch_end(self, trainer):
        body = "  ".join(f"{k} {v:.4f}" for k, v in trainer.state.items())
        print(f"[epoch {trainer.epoch + 1}] {body}  {time.time() - self.t0:.1f}s", flush=True)


class Trainer:
    def __init__(self, model, optimizer, callbacks, pos_weight):
        self.model, self.optimizer, self.callbacks = model, optimizer, callbacks
        self.pos_weight = torch.tensor(pos_weight)
        self.state, self.epoch = {}, 0

    def emit(self, event, *args):
        for cb in self.callbacks:
            getattr(cb, event)(self, *args)  # <<

    def fit(self, data, epochs, batch):
        num, cat, y = data
        for self.epoch in range(epochs):
            self.emit("on_epoch_begin")
            for idx in torch.randperm(len(y)).split(batch):
                logits = self.model(num[idx], cat[idx])
                loss = F.binary_cross_entropy_with_logits(logits, y[idx], pos_weight=self.pos_weight)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                self.emit("on_batch_end", loss, logits, y[idx])
            self.emit("on_epoch_end")


if __name__ == "__main__":
    torch.manual_seed(5)
    train = transactions(140_000, 1)
    test = transactions(10_000, 2)
    net = FTTransformer(train[0].shape[1], (40, 30))
    trainer = Trainer(net, torch.optim.AdamW(net.parameters(), 1e-3), [LossMeter(), AucMeter(), Progress()],
                      float((1 - train[2].mean()) / train[2].mean()))
    trainer.fit(train, epochs=2, batch=256)
    with torch.no_grad():
        p = torch.cat([net(a, b) for a, b in zip(test[0].split(1000), test[1].split(1000))]).numpy()
    print(f"test auc {roc_auc(p, test[2].numpy()):.4f}")
