"""Conversion model for display ads, on a small in-house training framework."""
import argparse
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


# ============================================================== framework part
class Metric:
    name = "metric"

    def __init__(self):
        self.reset()

    def reset(self):
        raise NotImplementedError

    def update(self, scores, labels):
        raise NotImplementedError

    def compute(self):
        raise NotImplementedError

    def __call__(self, scores, labels):
        self.update(scores, labels)
        return self.compute()  # <<


class AUROC(Metric):
    name = "auroc"

    def reset(self):
        self.scores, self.labels = [], []

    def update(self, scores, labels):
        self.scores.append(scores.detach().numpy())
        self.labels.append(labels.numpy())

    def compute(self):
        s = np.concatenate(self.scores)
        y = np.concatenate(self.labels)
        _, inverse, counts = np.unique(s, return_inverse=True, return_counts=True)  # <<
        mean_rank = np.cumsum(counts) - (counts - 1) / 2.0
        ranks = mean_rank[inverse]
        pos = y.sum()
        neg = len(y) - pos
        if pos == 0 or neg == 0:
            return 0.5
        return float((ranks[y > 0].sum() - pos * (pos + 1) / 2) / (pos * neg))


class LossAverage(Metric):
    name = "loss"

    def reset(self):
        self.total, self.n = 0.0, 0

    def update(self, value, _=None):
        self.total = self.total + value.detach()
        self.n += 1

    def compute(self):
        return float(self.total) / max(1, self.n)


class Module(nn.Module):
    def __init__(self):
        super().__init__()
        self.logged = {}

    def log(self, name, value):
        self.logged[name] = value

    def training_step(self, batch):
        raise NotImplementedError

    def configure_optimizers(self):
        raise NotImplementedError

    def on_epoch_end(self):
        pass


class Fit:
    def __init__(self, epochs):
        self.epochs = epochs

    def __call__(self, module, batches):
        optimizer = module.configure_optimizers()
        for epoch in range(self.epochs):
            t0 = time.time()
            module.train()
            for batch in batches():
                loss = module.training_step(batch)  # <<
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                optimizer.step()
            module.on_epoch_end()
            shown = "  ".join(f"{k} {v:.4f}" for k, v in module.logged.items())
            print(f"epoch {epoch}  {shown}  ({time.time() - t0:.2f}s)")


# =============================================================== project part
class Conversion(Module):
    def __init__(self, cards, dense, dim=8, hidden=192):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(c, dim) for c in cards)
        width = dim * len(cards) + dense
        self.deep = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(),
                                  nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 1))
        self.cross_w = nn.Parameter(torch.randn(width) * 0.05)
        self.cross_b = nn.Parameter(torch.zeros(width))
        self.cross_out = nn.Linear(width, 1)
        self.auc = AUROC()
        self.mean_loss = LossAverage()

    def forward(self, cats, dense):
        x0 = torch.cat([t(cats[:, i]) for i, t in enumerate(self.tables)] + [dense], 1)
        crossed = x0 * (x0 @ self.cross_w).unsqueeze(1) + self.cross_b + x0
        return (self.deep(x0) + self.cross_out(crossed)).squeeze(1)

    def training_step(self, batch):
        cats, dense, y = batch
        logits = self(cats, dense)
        loss = F.binary_cross_entropy_with_logits(logits, y)
        self.mean_loss.update(loss)
        self.log("auroc", self.auc(torch.sigmoid(logits), y))  # <<
        return loss

    def on_epoch_end(self):
        self.log("loss", self.mean_loss.compute())
        self.mean_loss.reset()
        self.auc.reset()

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1.5e-3)


def ad_log(rows, cards, dense, seed):
    g = torch.Generator().manual_seed(seed)
    cats = torch.stack([torch.randint(0, c, (rows,), generator=g) for c in cards], 1)
    x = torch.randn(rows, dense, generator=g)
    logit = x[:, 0] * 0.8 - x[:, 1] * (cats[:, 0] % 2) + 0.4 * (cats[:, 1] % 5 == 0) - 0.8
    y = (torch.rand(rows, generator=g) < torch.sigmoid(logit)).float()
    return cats, x, y


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=26)
    parser.add_argument("--rows", type=int, default=102_400)
    parser.add_argument("--batch", type=int, default=512)
    args = parser.parse_args()
    torch.manual_seed(0)
    cards = [50, 300, 24, 7, 1000, 80, 12, 400]
    data = ad_log(args.rows, cards, dense=10, seed=1)
    g = torch.Generator().manual_seed(2)

    def batches():
        for rows in torch.randperm(args.rows, generator=g).split(args.batch):
            yield tuple(column[rows] for column in data)

    Fit(args.epochs)(Conversion(cards, 10), batches)


if __name__ == "__main__":
    main()
