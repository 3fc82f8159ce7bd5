import argparse

import torch
import torch.nn as nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, SequentialSampler, TensorDataset


def make_data(n):
    x = torch.randn(n, 96)
    return TensorDataset(x, (x[:, :5].sum(1) > x[:, 5:10].sum(1)).long())


def loader_for(data, sampler, size):
    return DataLoader(data, sampler=BatchSampler(sampler, size, False), batch_size=None)


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    loss = right = seen = 0
    for x, y in loader:
        logits = model(x)
        loss += nn.functional.cross_entropy(logits, y, reduction="sum").item()
        right += (logits.argmax(1) == y).sum().item()
        seen += len(y)
    model.train()
    return loss / seen, right / seen


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--eval-every", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(0)
    train, valid = make_data(10240), make_data(2048)
    train_loader = loader_for(train, RandomSampler(train), 256)
    valid_loader = loader_for(valid, SequentialSampler(valid), 512)
    model = nn.Sequential(
        nn.Linear(96, 512), nn.ReLU(), nn.Dropout(0.1), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 2)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    best = float("inf")
    for epoch in range(args.epochs):
        for step, (x, y) in enumerate(train_loader):
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        valid_loss, accuracy = evaluate(model, valid_loader)
        best = min(best, valid_loss)
        print(f"epoch {epoch} train {loss.item():.4f} valid {valid_loss:.4f} acc {accuracy:.3f}")


if __name__ == "__main__":
    main()
