"""Fine-tune an encoder with a learning rate of its own for each layer."""
import argparse

import torch
from torch import nn


class Encoder(nn.Module):
    def __init__(self, depth=20, width=64):
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
            for _ in range(depth)
        )
        self.head = nn.Linear(width, 3)

    def forward(self, x):
        for layer in self.layers:
            x = x + layer(x)
        return self.head(x)


class Optimizers:
    def __init__(self, model, lr, falloff):
        self.all = []
        parts = [*model.layers, model.head]
        for k, part in enumerate(parts):
            rate = lr * falloff ** (len(parts) - 1 - k)
            for name, p in part.named_parameters():
                decay = 0.0 if name.endswith("bias") else 0.01
                self.all.append(torch.optim.AdamW([p], lr=rate, weight_decay=decay))

    def zero_grad(self):
        for optimizer in self.all:
            optimizer.zero_grad()

    def step(self):
        for optimizer in self.all:
            optimizer.step()  # <<


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=200)
    args = parser.parse_args()
    torch.manual_seed(0)
    x = torch.randn(4096, 64)
    y = (x[:, :21].sum(1) > 2).long() + (x[:, 21:42].sum(1) > 2).long()
    model = Encoder()
    optimizer = Optimizers(model, 1e-3, 0.9)
    for epoch in range(args.epochs):
        for index in torch.randperm(len(x)).split(128):
            loss = nn.functional.cross_entropy(model(x[index]), y[index])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()  # <<
        print(f"epoch {epoch} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
