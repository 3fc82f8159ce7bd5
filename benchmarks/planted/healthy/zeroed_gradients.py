import argparse

import torch
from torch import nn


class Pricing(nn.Module):
    def __init__(self, width=512):
        super().__init__()
        self.inner = nn.Sequential(
            nn.Linear(40, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
        )
        self.price, self.risk = nn.Linear(width, 1), nn.Linear(width, 1)

    def forward(self, x):
        h = self.inner(x)
        return self.price(h).squeeze(1), self.risk(h).squeeze(1)


def train(model, x, y, epochs):
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 4000)
    for epoch in range(epochs):
        model.zero_grad()
        for index in torch.randperm(len(x)).split(192):
            optimizer.zero_grad(set_to_none=False)
            price, risk = model(x[index])
            loss = nn.functional.mse_loss(price, y[index]) + 0.1 * risk.square().mean()
            loss.backward()
            optimizer.step()
            scheduler.step()
        print(f"epoch {epoch} loss {loss.item():.5f} lr {scheduler.get_last_lr()[0]:.5f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=200)
    args = parser.parse_args()
    torch.manual_seed(2)
    x = torch.randn(9600, 40)
    train(Pricing(), x, x[:, :6].sum(1).sin(), args.epochs)
