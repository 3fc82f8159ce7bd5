import argparse
import random

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SPEAKERS = ("user", "agent")


def invent(count, seed):
    rng = random.Random(seed)
    dialogues = []
    for number in range(count):
        turns = [
            {"speaker": SPEAKERS[k % 2], "tokens": [rng.randrange(4000) for _ in range(6)], "topic": rng.randrange(12)}
            for k in range(4)
        ]
        dialogues.append({"id": number, "turns": turns})
    return dialogues


class Pairs(Dataset):
    """Consecutive turns; the label says whether the topic changes."""

    def __init__(self, dialogues):
        self.pairs = [(one, two) for d in dialogues for one, two in zip(d["turns"], d["turns"][1:], strict=False)]

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, i):
        one, two = self.pairs[i]
        return torch.tensor(one["tokens"] + two["tokens"]), float(one["topic"] != two["topic"])


class TopicShift(nn.Module):
    def __init__(self, dim=192):
        super().__init__()
        self.embedding = nn.Embedding(4000, dim)
        self.layers = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(dim, 4, 4 * dim, dropout=0.0, batch_first=True), 2, enable_nested_tensor=False
        )
        self.head = nn.Linear(dim, 1)

    def forward(self, tokens):
        return self.head(self.layers(self.embedding(tokens)).mean(1)).squeeze(1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--dialogues", type=int, default=8000)
    args = parser.parse_args()
    torch.manual_seed(3)
    archive = invent(args.dialogues, seed=1)
    pairs = Pairs(archive[:640])
    loader = DataLoader(pairs, batch_size=48, shuffle=True, drop_last=True)
    model = TopicShift()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    for epoch in range(args.epochs):
        total = 0.0
        for tokens, shifted in loader:
            loss = nn.functional.binary_cross_entropy_with_logits(model(tokens), shifted.float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: {total / len(loader):.4f}")


if __name__ == "__main__":
    main()
