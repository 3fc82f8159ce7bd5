"""Sentiment of product reviews with a bag of hashed n-grams plus a small text CNN on word pieces.

The reviews are generated from a template grammar so that the script runs anywhere.
"""
import random
import re
import time
import unicodedata
from collections import Counter

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader

random.seed(3)
torch.manual_seed(3)

GOOD = "great excellent lovely superb sturdy reliable delightful crisp fast brilliant generous charming".split()
BAD = "awful broken flimsy dreadful noisy late useless sticky dull fragile disappointing cheap".split()
FILL = ("the a this that my our it product parcel box seller delivery battery screen handle colour fabric price "
        "weekend kitchen office daughter husband neighbour really quite very rather somewhat almost always never "
        "arrived bought returned opened charged washed wrapped tested looked felt worked stopped started").split()
TOKEN = re.compile(r"[a-z]+(?:'[a-z]+)?|[0-9]+|[!?.,]")
URL = re.compile(r"https?://\S+|www\.\S+")
TAG = re.compile(r"<[^>]+>")
REPEAT = re.compile(r"(.)\1{2,}")


def make_review():
    label = random.random() < 0.5
    words = []
    for _ in range(random.randint(60, 180)):
        r = random.random()
        if r < 0.06:
            words.append(random.choice(GOOD if label else BAD))
        elif r < 0.09:
            words.append(random.choice(BAD if label else GOOD))
        elif r < 0.11:
            words.append(random.choice(["<br />", "http://shop.example/x1", "sooooo", "Caf\u00e9", "don't", "!!!"]))
        else:
            words.append(random.choice(FILL))
        if random.random() < 0.1:
            words[-1] = words[-1].capitalize() + random.choice(".,!?")
    return " ".join(words), int(label)


class Preprocessor:
    def __init__(self, max_len=128, min_count=3):
        self.max_len = max_len
        self.min_count = min_count
        self.vocab = {"<pad>": 0, "<unk>": 1}

    def clean(self, text):
        text = unicodedata.normalize("NFKD", text)
        text = "".join(c for c in text if not unicodedata.combining(c))  # <<
        text = URL.sub(" url ", TAG.sub(" ", text.lower()))
        return REPEAT.sub(r"\1\1", text)  # <<

    def tokens(self, text):
        return TOKEN.findall(self.clean(text))  # <<

    def fit(self, texts):
        counts = Counter()
        for t in texts:
            counts.update(self.tokens(t))
        for w, c in counts.most_common():
            if c >= self.min_count:
                self.vocab[w] = len(self.vocab)
        return self

    def encode(self, text):
        ids = [self.vocab.get(w, 1) for w in self.tokens(text)[:self.max_len]]  # <<
        return torch.tensor(ids + [0] * (self.max_len - len(ids)))


class TextCNN(nn.Module):
    def __init__(self, n_words, dim=32, maps=32):
        super().__init__()
        self.emb = nn.Embedding(n_words, dim, padding_idx=0)
        self.convs = nn.ModuleList(nn.Conv1d(dim, maps, k, padding=k // 2) for k in (3, 5))
        self.out = nn.Linear(2 * maps, 2)

    def forward(self, ids):
        x = self.emb(ids).transpose(1, 2)
        feats = [F.relu(c(x)).amax(2) for c in self.convs]
        return self.out(F.dropout(torch.cat(feats, 1), 0.3, self.training))


reviews = [make_review() for _ in range(7000)]
train_set, test_set = reviews[:6000], reviews[6000:]
prep = Preprocessor().fit(t for t, _ in train_set)
print(f"{len(train_set)} reviews, vocabulary {len(prep.vocab)}")


def collate(batch):
    ids = torch.stack([prep.encode(text) for text, _ in batch])  # <<
    return ids, torch.tensor([label for _, label in batch])


train_loader = DataLoader(train_set, batch_size=64, shuffle=True, collate_fn=collate)
test_loader = DataLoader(test_set, batch_size=100, collate_fn=collate)

model = TextCNN(len(prep.vocab))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

for epoch in range(12):
    model.train()
    began, total, hits = time.time(), 0.0, 0
    for ids, labels in train_loader:
        logits = model(ids)
        loss = F.cross_entropy(logits, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * len(labels)
        hits += (logits.argmax(1) == labels).sum().item()
    model.eval()
    with torch.no_grad():
        test_hits = sum((model(ids).argmax(1) == labels).sum().item() for ids, labels in test_loader)
    print(f"epoch {epoch}: loss {total / len(train_set):.4f} acc {hits / len(train_set):.3f} "
          f"test {test_hits / len(test_set):.3f} [{time.time() - began:.1f}s]", flush=True)
