import argparse
import os
import tempfile

import torch
import torch.nn as nn


class Wide(nn.Module):
    """Big embedding, small network: cheap to train and large to store."""

    def __init__(self, items=80000, width=64):
        super().__init__()
        self.items = nn.EmbeddingBag(items, width, mode="mean", sparse=True)
        self.net = nn.Sequential(nn.Linear(width, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 1))

    def forward(self, baskets):
        return self.net(self.items(baskets)).squeeze(1)


def save(path, model, optimizer, epoch, step):
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch, "step": step}
    torch.save(state, path + ".tmp")  # <<
    os.replace(path + ".tmp", path)  # <<


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--save-every", type=int, default=5)
    args = parser.parse_args()
    torch.manual_seed(0)
    path = os.path.join(tempfile.mkdtemp(), "last.pt")
    baskets = torch.randint(0, 80000, (40 * 256, 12))
    spend = (baskets % 7).float().mean(1)
    model = Wide()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    step = 0
    for epoch in range(args.epochs):
        for index in torch.randperm(len(baskets)).split(256):
            loss = nn.functional.mse_loss(model(baskets[index]), spend[index])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % args.save_every == 0:
                save(path, model, optimizer, epoch, step)  # <<
        print(f"epoch {epoch} step {step} loss {loss.item():.5f}")
    os.remove(path)


if __name__ == "__main__":
    main()
