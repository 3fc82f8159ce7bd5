"""Learn to add: a transformer-free sequence model with a growing curriculum."""
import argparse
import random

import torch
from torch import nn

CHARS = "0123456789+= "


def difficulty(text):
    return sum(int(c) for c in text if c.isdigit()) + 10 * len(text.strip())


def build_examples(n):
    rnd = random.Random(0)
    examples = []
    for _ in range(n):
        digits = rnd.randint(1, 3)
        a, b = rnd.randrange(10**digits), rnd.randrange(10**digits)
        question = f"{a}+{b}=".rjust(8)  # <<
        answer = str(a + b).ljust(4)  # <<
        ids = [CHARS.index(c) for c in question + answer]  # <<
        examples.append((difficulty(question), ids))  # <<
    examples.sort()  # <<
    return torch.tensor([ids for _, ids in examples])  # <<


class Adder(nn.Module):
    def __init__(self, width=192):
        super().__init__()
        self.embed = nn.Embedding(len(CHARS), 32)
        self.net = nn.Sequential(
            nn.Flatten(), nn.Linear(256, width * 2), nn.ReLU(), nn.Linear(width * 2, 4 * len(CHARS))
        )

    def forward(self, question):
        return self.net(self.embed(question)).view(-1, len(CHARS), 4)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=200)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = Adder()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(args.epochs):
        table = build_examples(20000)  # <<
        easy = table[: int(len(table) * min(1.0, 0.5 + 0.02 * epoch))]
        for step in range(80):
            rows = easy[torch.randint(0, len(easy), (256,))]
            loss = nn.functional.cross_entropy(model(rows[:, :8]), rows[:, 8:])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.4f}")
