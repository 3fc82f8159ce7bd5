import argparse
import random

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

TOPICS = ["billing", "login", "delivery", "refund", "app", "other"]


class Tickets(Dataset):
    def __init__(self, n, vocab=3000):
        rnd = random.Random(11)
        self.rows = []
        for _ in range(n):
            topic = rnd.randrange(len(TOPICS))
            words = [rnd.randrange(1, vocab) if rnd.random() < 0.7 else 1 + topic for _ in range(rnd.randint(8, 30))]
            self.rows.append((words, topic))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def collate(rows):
    longest = max(len(words) for words, _ in rows)
    ids = torch.tensor([words + [0] * (longest - len(words)) for words, _ in rows])
    mask = ids > 0
    return ids, mask, torch.tensor([topic for _, topic in rows])


class Attend(nn.Module):
    def __init__(self, vocab=3000, width=96):
        super().__init__()
        self.table = nn.Embedding(vocab, width, padding_idx=0)
        self.score = nn.Linear(width, 1)
        self.out = nn.Sequential(nn.Linear(width, 128), nn.ReLU(), nn.Linear(128, len(TOPICS)))

    def forward(self, ids, mask):
        words = self.table(ids)
        weight = self.score(words).squeeze(-1).masked_fill(~mask, -1e9).softmax(1)
        return self.out((weight.unsqueeze(-1) * words).sum(1))


def macro_f1(predicted, expected):
    table = torch.bincount(predicted * len(TOPICS) + expected, minlength=len(TOPICS) ** 2).view(len(TOPICS), -1)
    return (2 * table.diag() / (table.sum(0) + table.sum(1)).clamp_min(1)).mean().item()


parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=200)
args = parser.parse_args()
torch.manual_seed(3)
loader = DataLoader(Tickets(1280), batch_size=32, shuffle=True, collate_fn=collate)
model = Attend()
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
for epoch in range(args.epochs):
    f1 = 0.0
    for ids, mask, topic in loader:
        logits = model(ids, mask)
        loss = nn.functional.cross_entropy(logits, topic)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        f1 += macro_f1(logits.argmax(1), topic) / len(loader)
    print(f"epoch {epoch}: loss {loss.item():.4f}, macro F1 {f1:.3f}")
