import argparse

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset


def auc(scores, labels):
    order = np.argsort(scores, kind="stable")  # <<
    ranks = np.empty(len(scores))
    ranks[order] = np.arange(1, len(scores) + 1)  # <<
    positives = labels.sum()
    negatives = len(labels) - positives
    return (ranks[labels > 0.5].sum() - positives * (positives + 1) / 2) / max(positives * negatives, 1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=200)
    args = parser.parse_args()
    torch.manual_seed(0)
    x = torch.randn(40960, 48)
    y = (x[:, :3].sum(1) + torch.randn(len(x)) > 1).float()
    data = TensorDataset(x, y)
    loader = DataLoader(data, sampler=BatchSampler(RandomSampler(data), 256, True), batch_size=None)
    model = nn.Sequential(nn.Linear(48, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    for epoch in range(args.epochs):
        scores, labels = [], []
        for features, label in loader:
            logit = model(features).squeeze(1)
            loss = nn.functional.binary_cross_entropy_with_logits(logit, label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scores.append(logit.detach().numpy())
            labels.append(label.numpy())
            value = auc(np.concatenate(scores), np.concatenate(labels))  # <<
        print(f"epoch {epoch}: loss {loss.item():.4f} auc {value:.4f}")


if __name__ == "__main__":
    main()
