import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

COLUMNS = 48
EDGES = [-2.5 + k / 20 for k in range(101)]


class Buckets(nn.Module):
    """One learned number for each bucket that a column can fall into, added up over the columns."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(len(EDGES) + 1, 1)
        self.register_buffer("edges", torch.tensor(EDGES))

    def bucket(self, values):
        return torch.bucketize(values, self.edges, right=True)

    def forward(self, x):
        return self.embedding(self.bucket(x)).sum(1)


class Tabular(nn.Module):
    def __init__(self, width=256):
        super().__init__()
        self.buckets = Buckets()
        self.body = nn.Sequential(nn.Linear(COLUMNS, width), nn.GELU(), nn.Linear(width, width), nn.GELU())
        self.head = nn.Linear(width, 1)

    def forward(self, x):
        return self.head(self.body(x) + self.buckets(x)).squeeze(1)


def make(rows):
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(rows, COLUMNS, generator=generator)
    return TensorDataset(x, x[:, :8].amax(1) - x[:, 8:16].amin(1))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=300)
    parser.add_argument("--batch-size", type=int, default=1024)
    args = parser.parse_args()
    torch.manual_seed(5)
    data = make(16384)
    loader = DataLoader(data, batch_size=None, sampler=torch.utils.data.BatchSampler(
        torch.utils.data.RandomSampler(data), args.batch_size, drop_last=True
    ))
    model = Tabular()
    step = torch.compile(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    for epoch in range(args.epochs):
        for x, y in loader:
            loss = nn.functional.mse_loss(step(x), y)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: mse {loss.item():.4f}")


if __name__ == "__main__":
    main()
