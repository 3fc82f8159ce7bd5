import argparse
import csv
import io

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import TensorDataset, random_split


def transactions(n):
    """A made-up export of the payment system, as it would come as CSV."""
    g = torch.Generator().manual_seed(77)
    values = torch.randn(n, 30, generator=g)
    fraud = (values[:, 0] * values[:, 1] > 1.2).int()
    out = io.StringIO()
    writer = csv.writer(out)
    for row, label in zip(values.tolist(), fraud.tolist()):
        writer.writerow([*(f"{v:.4f}" for v in row), label])
    return out.getvalue()


class FraudNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(30, 192), nn.Linear(192, 192)])
        self.out = nn.Linear(192, 1)

    def forward(self, x):
        for layer in self.layers:
            x = F.elu(layer(x))
        return self.out(x).squeeze(1)


class Trainer:
    def __init__(self, args):
        rows = list(csv.reader(io.StringIO(transactions(12000))))
        table = torch.tensor([[float(v) for v in row] for row in rows])
        data = TensorDataset(table[:, :-1], table[:, -1])
        self.train_set, self.test_set = random_split(data, [8192, 12000 - 8192])
        x, y = data[self.train_set.indices]
        self.train_x, self.train_y = x, y
        self.test = data[self.test_set.indices]
        self.model = FraudNet()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=args.lr)

    @torch.no_grad()
    def recall(self):
        self.model.eval()
        x, y = self.test
        caught = torch.cat([self.model(part) for part in x.split(256)]) > 0
        self.model.train()
        return (caught & (y > 0)).sum().item() / max(y.sum().item(), 1)

    def batches(self):
        for index in torch.randperm(len(self.train_x)).split(256):
            yield self.train_x[index], self.train_y[index]

    def fit(self, epochs):
        best = 0.0
        for epoch in range(epochs):
            for step, (x, y) in enumerate(self.batches()):
                loss = F.binary_cross_entropy_with_logits(self.model(x), y)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
            best = max(best, self.recall())
            print(f"epoch {epoch} loss {loss.item():.4f} best recall {best:.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--lr", type=float, default=1e-3)
    options = parser.parse_args()
    torch.manual_seed(0)
    Trainer(options).fit(options.epochs)
