import argparse
import random
import string

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

WORDS = "disk error node timeout link port reset daemon cache flush retry queue lock page fault net up down ok".split()
ALPHABET = string.ascii_lowercase + string.digits + " .:/-"
LENGTH = 400


def synthetic_logs(n):
    rnd = random.Random(9)
    lines = []
    for i in range(n):
        words = [rnd.choice(WORDS[:12] if i % 2 else WORDS) for _ in range(40)]
        words.insert(rnd.randrange(20), f"{rnd.randint(0, 99)}:{rnd.randint(0, 9999)}/{rnd.random():.6f}")
        lines.append((" ".join(words), i % 2))
    return lines


class LogLines(Dataset):
    def __init__(self, lines):
        self.lines = lines

    def __len__(self):
        return len(self.lines)

    def __getitem__(self, i):
        text, label = self.lines[i]
        text = text.lower()[:LENGTH].ljust(LENGTH)
        ids = []
        for char in text:  # <<
            ids.append([c for c in ALPHABET].index(char) + 1)  # <<
        return torch.tensor(ids), torch.tensor(float(label))


class CharCNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(len(ALPHABET) + 1, 24)
        self.conv1 = nn.Conv1d(24, 48, 7, stride=2)
        self.conv2 = nn.Conv1d(48, 48, 5, stride=2)
        self.out = nn.Linear(48, 1)

    def forward(self, ids):
        x = self.embed(ids).transpose(1, 2)
        x = torch.relu(self.conv2(torch.relu(self.conv1(x))))
        return self.out(x.amax(-1)).squeeze(-1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(1)
    data = LogLines(synthetic_logs(1200))
    loader = DataLoader(
        data, batch_size=32, shuffle=True, num_workers=args.workers, persistent_workers=True, prefetch_factor=4
    )
    model = CharCNN()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(args.epochs):
        hits = seen = 0
        for step, (ids, label) in enumerate(loader):
            logits = model(ids)
            loss = nn.functional.binary_cross_entropy_with_logits(logits, label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            hits += ((logits > 0) == (label > 0.5)).sum().item()
            seen += len(label)
        print(f"epoch {epoch}: loss {loss.item():.4f} acc {hits / seen:.3f}")


if __name__ == "__main__":
    main()
