import argparse
import random
import re
import zlib

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

TOKEN = re.compile(r"[a-z]+(?:'[a-z]+)?|[0-9]+|[!?.]", re.IGNORECASE)
GOOD = "great lovely fine superb warm enjoyed crisp".split()
BAD = "dull awful broken cold stale noisy regret".split()
REST = [f"word{i}" for i in range(3000)]
BUCKETS = 20000


def write_reviews(n):
    rnd = random.Random(2)
    for i in range(n):
        words = rnd.choices(REST, k=150) + rnd.choices(GOOD if i % 2 else BAD, k=6)
        rnd.shuffle(words)
        yield " ".join(w.title() if rnd.random() < 0.2 else w for w in words) + "!", i % 2


class Reviews(Dataset):
    def __init__(self, pairs):
        self.pairs = list(pairs)
        self.hashed = [self.encode(text) for text, _ in self.pairs]

    def __len__(self):
        return len(self.pairs)

    def encode(self, text):
        words = [w.lower() for w in TOKEN.findall(text)]
        bigrams = [a + "_" + b for a, b in zip(words, words[1:])]
        return torch.tensor([zlib.crc32(w.encode()) % BUCKETS for w in words + bigrams])

    def __getitem__(self, i):
        text, label = self.pairs[i]
        return self.hashed[i], label


def collate(items):
    ids = torch.cat([x for x, _ in items])
    offsets = torch.tensor([0] + [len(x) for x, _ in items[:-1]]).cumsum(0)
    return ids, offsets, torch.tensor([y for _, y in items])


class Bag(nn.Module):
    def __init__(self):
        super().__init__()
        self.bag = nn.EmbeddingBag(BUCKETS, 64, mode="mean")
        self.mlp = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 2))

    def forward(self, ids, offsets):
        return self.mlp(self.bag(ids, offsets))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=200)
    args = parser.parse_args()
    torch.manual_seed(0)
    loader = DataLoader(Reviews(write_reviews(1600)), batch_size=32, shuffle=True, collate_fn=collate)
    model = Bag()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for epoch in range(args.epochs):
        for k, (ids, offsets, label) in enumerate(loader):
            loss = nn.functional.cross_entropy(model(ids, offsets), label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if k % 25 == 0:
                print(f"{epoch} {k} loss={loss.item():.4f}")


main()
