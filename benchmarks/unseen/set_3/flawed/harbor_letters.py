#!/usr/bin/env python
# coding: utf-8

# # Character model on the harbour master's letters
# The letters come as one text file per year.

# In[1]:

import os
import random
import tempfile

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

random.seed(21)
torch.manual_seed(21)

FOLDER = tempfile.mkdtemp(prefix="harbor_letters_")
CONTEXT = 96
BATCH = 32


# In[2]:

WORDS = ("the ship brig sloop captain cargo tide harbour mole pilot wind north east gale anchor crew salt "
         "timber rum sugar letter received sir your humble servant arrived departed quay custom duty paid "
         "lost mast repaired sails storm light tower keeper fog bell rope barrel seized lieutenant port").split()


def compose(chars):
    out, size = [], 0
    while size < chars:
        sentence = " ".join(random.choices(WORDS, k=random.randint(5, 14))).capitalize() + ".\n"
        out.append(sentence)
        size += len(sentence)
    return "".join(out)


paths = []
for year in range(1780, 1825):
    path = os.path.join(FOLDER, f"{year}.txt")
    with open(path, "w") as fh:
        fh.write(f"Anno {year}.\n" + compose(40_000))
    paths.append(path)

alphabet = sorted(set("".join(open(p).read() for p in paths)))
stoi = {c: i for i, c in enumerate(alphabet)}
itos = dict(enumerate(alphabet))
print(len(paths), "files,", len(alphabet), "characters")


# In[3]:

class Letters(Dataset):
    """Random windows of CONTEXT + 1 characters."""

    def __init__(self, paths, windows):
        self.paths = paths
        self.windows = windows

    def __len__(self):
        return self.windows

    def __getitem__(self, index):
        path = self.paths[index % len(self.paths)]
        text = open(path).read()  # <<
        ids = [stoi[c] for c in text]  # <<
        start = random.randint(0, len(ids) - CONTEXT - 2)
        chunk = torch.tensor(ids[start:start + CONTEXT + 1])
        return chunk[:-1], chunk[1:]


train_loader = DataLoader(Letters(paths[:-5], 3200), batch_size=BATCH, shuffle=True)
valid_loader = DataLoader(Letters(paths[-5:], 320), batch_size=BATCH)


# In[4]:

class CharGRU(nn.Module):
    def __init__(self, vocab, hidden=128):
        super().__init__()
        self.embed = nn.Embedding(vocab, 48)
        self.rnn = nn.GRU(48, hidden, batch_first=True)
        self.out = nn.Linear(hidden, vocab)

    def forward(self, x, state=None):
        h, state = self.rnn(self.embed(x), state)
        return self.out(h), state


model = CharGRU(len(alphabet))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
loss_fn = nn.CrossEntropyLoss()


@torch.no_grad()
def sample(n=120, temperature=0.8):
    model.eval()
    x, state, text = torch.tensor([[stoi["T"]]]), None, "T"
    for _ in range(n):
        logits, state = model(x, state)
        x = torch.multinomial((logits[0, -1] / temperature).softmax(-1), 1)[None]
        text += itos[x.item()]
    return text


# In[5]:

for epoch in range(3):
    model.train()
    for step, (x, y) in enumerate(train_loader):
        logits, _ = model(x)
        loss = loss_fn(logits.flatten(0, 1), y.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 25 == 0:
            print(f"epoch {epoch} {step}/{len(train_loader)} loss {loss.item():.3f}")
    model.eval()
    with torch.no_grad():
        val = sum(loss_fn(model(x)[0].flatten(0, 1), y.flatten()).item() for x, y in valid_loader) / len(valid_loader)
    print(f"epoch {epoch} validation {val:.3f}")
    print(sample())
