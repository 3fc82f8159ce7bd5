import argparse

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Epochs(Dataset):
    """EEG epochs turned into covariance maps with a random channel gain."""

    def __init__(self, n, threads):
        rng = np.random.default_rng(3)
        self.raw = torch.from_numpy(rng.normal(size=(n, 64, 1500)).astype(np.float32))
        self.label = torch.from_numpy(rng.integers(0, 2, n))
        self.raw[:, :8] *= 1 + self.label.view(-1, 1, 1)
        self.threads = threads
        self.opened = False

    def __len__(self):
        return len(self.raw)

    def __getitem__(self, i):
        if not self.opened:
            torch.set_num_threads(self.threads)
            self.opened = True
        x = self.raw[i] * (0.9 + 0.2 * torch.rand(64, 1))
        x = (x - x.mean(1, keepdim=True)) / x.std(1, keepdim=True).clamp(min=1e-6)
        x = torch.tanh(x) * torch.exp(-x.abs() / 4)
        return (x @ x.T / x.shape[1]), self.label[i]


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1)
    return parser.parse_args()


def main(args):
    torch.manual_seed(2)
    data = Epochs(400, args.threads)
    loader = DataLoader(data, batch_size=8, shuffle=True, num_workers=args.workers, persistent_workers=True)
    net = nn.Sequential(nn.Flatten(), nn.Linear(4096, 128), nn.ReLU(), nn.Linear(128, 2))
    opt = torch.optim.SGD(net.parameters(), lr=1e-2)
    for epoch in range(args.epochs):
        right = 0
        for x, y in loader:
            logits = net(x)
            loss = nn.functional.cross_entropy(logits, y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            right += (logits.argmax(1) == y).sum().item()
        print(f"epoch {epoch}: loss {loss.item():.4f} accuracy {right / len(data):.3f}")


if __name__ == "__main__":
    main(parse_args())
