"""Click prediction from crossed fields and calibrated numbers; the model is compiled."""
import argparse
import json
import tempfile

import torch
from torch import nn

FIELDS, KEYS, NUMBERS = 6, 5000, 64
LOWEST, SPACING = -4.0, 0.05


class CrossNet(nn.Module):
    def __init__(self, curve, width=8):
        super().__init__()
        self.embed = nn.Embedding(KEYS, width)
        self.register_buffer("levels", curve)
        size = FIELDS * width + NUMBERS
        self.cross = nn.ModuleList(nn.Linear(size, size) for _ in range(2))
        self.out = nn.Linear(size, 1)

    def calibrated(self, numbers):
        place = ((numbers - LOWEST) / SPACING).clamp(0, len(self.levels) - 1.001)
        left = place.long()
        return torch.lerp(self.levels[left], self.levels[left + 1], place - left)

    def forward(self, keys, numbers):
        first = torch.cat([self.embed(keys).flatten(1), self.calibrated(numbers)], 1)
        x = first
        for layer in self.cross:
            x = first * layer(x) + x
        return self.out(x).squeeze(1)


def impressions(n):
    g = torch.Generator().manual_seed(1)
    keys = torch.randint(0, KEYS, (n, FIELDS), generator=g)
    numbers = torch.randn(n, NUMBERS, generator=g)
    return keys, numbers, ((keys[:, 0] + keys[:, 1]) % 7 + numbers[:, 0] > 5).float()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=300)
    args = parser.parse_args()
    torch.manual_seed(1)
    keys, numbers, clicked = impressions(40960)
    model = CrossNet(torch.linspace(-4, 4, 161).mul(1.5).tanh())
    forward = torch.compile(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    audit = open(tempfile.mkdtemp() + "/audit.jsonl", "w")
    for epoch in range(args.epochs):
        for index in torch.randperm(len(keys)).split(1024):
            logit = forward(keys[index], numbers[index])
            loss = nn.functional.binary_cross_entropy_with_logits(logit, clicked[index])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            record = {"loss": loss.item(), "mean": logit.detach().sigmoid().mean().item()}
            audit.write(json.dumps(record) + "\n")
            audit.flush()
        print(f"epoch {epoch} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
