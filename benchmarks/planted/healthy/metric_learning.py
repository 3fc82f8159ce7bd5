import argparse
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F


@dataclass
class Running:
    right: torch.Tensor
    seen: int = 0

    def update(self, similarity):
        guess = similarity.argmax(1)
        self.right += (guess == torch.arange(len(guess))).sum()
        self.seen += len(guess)


def two_views(x):
    return x + 0.3 * torch.randn_like(x), x * (torch.rand_like(x) > 0.2)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=200)
    args = parser.parse_args()
    torch.manual_seed(0)
    data = torch.randn(2560, 128)
    net = nn.Sequential(nn.Linear(128, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 64))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-5)
    for epoch in range(args.epochs):
        running = Running(torch.zeros((), dtype=torch.long))
        for index in torch.randperm(len(data)).split(256):
            a, b = two_views(data[index])
            similarity = F.normalize(net(a), dim=1) @ F.normalize(net(b), dim=1).T / 0.1
            loss = F.cross_entropy(similarity, torch.arange(len(index)))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            running.update(similarity.detach())
        print(f"epoch {epoch} loss {loss.item():.4f} top1 {running.right.item() / running.seen:.3f}")


main()
