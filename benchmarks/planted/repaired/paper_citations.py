import argparse

import torch
import torch.nn as nn


class MeanAggregate(nn.Module):
    def __init__(self, fan_in, fan_out):
        super().__init__()
        self.own = nn.Linear(fan_in, fan_out)
        self.others = nn.Linear(fan_in, fan_out, bias=False)

    def forward(self, x, neighbours):
        return self.own(x) + self.others(x[neighbours].mean(1))


class Net(nn.Module):
    def __init__(self, features, classes):
        super().__init__()
        self.one = MeanAggregate(features, 64)
        self.two = MeanAggregate(64, 64)
        self.out = nn.Linear(64, classes)

    def forward(self, x, neighbours):
        x = torch.relu(self.one(x, neighbours))
        return self.out(torch.relu(self.two(x, neighbours)))


def subgraph(papers, links, size, g):
    """A random set of papers; who each of them cites inside the set."""
    chosen = torch.randperm(len(papers), generator=g)[:size]
    return papers[chosen], links[chosen] % size, chosen


parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=150)
args = parser.parse_args()
torch.manual_seed(0)
g = torch.Generator().manual_seed(0)
papers = torch.randn(20000, 64, generator=g)
links = torch.randint(0, 20000, (20000, 8), generator=g)
field = papers[:, :5].argmax(1)
model = Net(64, 5)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
for epoch in range(args.epochs):
    table = torch.zeros(2, 5)
    for step in range(100):
        x, neighbours, chosen = subgraph(papers, links, 128, g)
        logits = model(x, neighbours)
        loss = nn.functional.cross_entropy(logits, field[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        truth = field[chosen]
        table[0] += torch.bincount(truth[logits.argmax(1) == truth], minlength=5)
        table[1] += torch.bincount(truth, minlength=5)
        accuracy = (table[0] / table[1].clamp_min(1)).mean().item()
    print(f"epoch {epoch}: loss {loss.item():.4f} balanced accuracy {accuracy:.4f}")
