"""Pairwise learning to rank with a small Trainer class."""
import argparse

import torch
from torch import nn


def pair_auc(scores, relevant):
    """Share of (relevant, other) pairs in the right order."""
    scores, relevant = scores.tolist(), relevant.tolist()
    good = pairs = 0
    for i, score in enumerate(scores):  # <<
        if not relevant[i]:  # <<
            continue
        for j, other in enumerate(scores):  # <<
            if not relevant[j]:  # <<
                pairs += 1  # <<
                good += score > other  # <<
    return good / max(pairs, 1)


class Trainer:
    def __init__(self, model, features, relevance, lr=1e-3, batch=384):
        self.model = model
        self.features, self.relevance = features, relevance
        self.batch = batch
        self.optimizer = torch.optim.Adam(model.parameters(), lr=lr)
        self.metrics = {"loss": 0.0, "auc": 0.0}

    def _loss(self, scores, relevant):
        margin = scores[relevant][:, None] - scores[~relevant][None]
        return nn.functional.softplus(-margin).mean()

    def _update_metrics(self, loss, scores, relevant):
        self.metrics["loss"] = 0.9 * self.metrics["loss"] + 0.1 * loss.item()
        self.metrics["auc"] = 0.9 * self.metrics["auc"] + 0.1 * pair_auc(scores, relevant)  # <<

    def train_epoch(self):
        for index in torch.randperm(len(self.features)).split(self.batch):
            scores = self.model(self.features[index]).squeeze(1)
            relevant = self.relevance[index]
            loss = self._loss(scores, relevant)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self._update_metrics(loss, scores.detach(), relevant)  # <<

    def fit(self, epochs):
        for epoch in range(epochs):
            self.train_epoch()
            print(f"epoch {epoch} " + " ".join(f"{k}={v:.4f}" for k, v in self.metrics.items()))


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=200)
    torch.manual_seed(0)
    x = torch.randn(384 * 60, 64)
    y = x[:, 0] + 0.5 * x[:, 1] * x[:, 2] > 0.3
    model = nn.Sequential(nn.Linear(64, 192), nn.ReLU(), nn.Linear(192, 192), nn.ReLU(), nn.Linear(192, 1))
    Trainer(model, x, y).fit(p.parse_args().epochs)
