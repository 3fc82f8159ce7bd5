import argparse
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn, optim
from torch.utils.data import DataLoader, Dataset


@dataclass
class Args:
    epochs: int
    batch: int = 2048
    lr: float = 3e-3


class Jets(Dataset):
    def __init__(self, features, labels):
        self.features = features
        self.labels = labels

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return torch.from_numpy(self.features[i]), torch.tensor(self.labels[i])  # <<


def simulate(n):
    rng = np.random.default_rng(8)
    labels = rng.integers(0, 2, n).astype(np.float32)
    features = rng.normal(size=(n, 40)).astype(np.float32)
    features[:, :5] += 0.4 * labels[:, None]
    return features, labels


def train(args):
    torch.manual_seed(args.batch)
    loader = DataLoader(Jets(*simulate(40960)), batch_size=args.batch, shuffle=True, drop_last=True)  # <<
    net = nn.Sequential(nn.Linear(40, 128), nn.SiLU(), nn.Linear(128, 128), nn.SiLU(), nn.Linear(128, 1))
    opt = optim.AdamW(net.parameters(), lr=args.lr)
    ema = {k: v.clone() for k, v in net.state_dict().items()}
    for epoch in range(args.epochs):
        for feats, label in loader:  # <<
            opt.zero_grad()
            loss = nn.functional.binary_cross_entropy_with_logits(net(feats).squeeze(1), label)
            loss.backward()
            opt.step()
            with torch.no_grad():
                for k, v in net.state_dict().items():
                    ema[k].lerp_(v, 0.01)
        print(f"{epoch:4d}  bce {loss.item():.5f}")


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=200)
    train(Args(**vars(ap.parse_args())))
