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


def layer_groups(model, lr, falloff):
    parts = [*model.layers, model.head]
    for k, part in enumerate(parts):
        rate = lr * falloff ** (len(parts) - 1 - k)
        biases = [p for name, p in part.named_parameters() if name.endswith("bias")]
        weights = [p for name, p in part.named_parameters() if not name.endswith("bias")]
        yield {"params": weights, "lr": rate, "weight_decay": 0.01}
        yield {"params": biases, "lr": rate, "weight_decay": 0.0}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=200)
    args = parser.parse_args()
    torch.manual_seed(0)
    x = torch.randn(4096, 64)
    y = (x[:, :21].sum(1) > 2).long() + (x[:, 21:42].sum(1) > 2).long()
    model = Encoder()
    optimizer = torch.optim.AdamW(list(layer_groups(model, 1e-3, 0.9)), fused=True)
    for epoch in range(args.epochs):
        for index in torch.randperm(len(x)).split(128):
            loss = nn.functional.cross_entropy(model(x[index]), y[index])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
