"""Character level language model on a memory-mapped token file."""
import argparse
import os
import tempfile

import numpy as np
import torch
import torch.nn as nn
from torch.nn import functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=200)
parser.add_argument("--iters", type=int, default=30, help="iterations per epoch")
args = parser.parse_args()

block_size = 16
batch_size = 512
vocab_size = 65
n_embd = 32
learning_rate = 1e-3

torch.manual_seed(1337)
folder = tempfile.mkdtemp()
path = os.path.join(folder, "train.bin")
chain = (np.cumsum(np.random.default_rng(0).integers(0, 3, 500_000)) % vocab_size).astype(np.uint16)
chain.tofile(path)


def get_batch():
    data = np.memmap(path, dtype=np.uint16, mode="r")
    ix = torch.randint(len(data) - block_size - 1, (batch_size,))
    window = torch.from_numpy(data[ix.numpy()[:, None] + np.arange(block_size + 1)].astype(np.int64))
    x, y = window[:, :-1], window[:, 1:].contiguous()
    return x, y


class BigramMLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok = nn.Embedding(vocab_size, n_embd)
        self.mix = nn.Conv1d(n_embd, n_embd, 4)
        self.head = nn.Linear(n_embd, vocab_size)

    def forward(self, idx, targets):
        h = F.pad(self.tok(idx).transpose(1, 2), (3, 0))
        logits = self.head(F.relu(self.mix(h)).transpose(1, 2))
        return F.cross_entropy(logits.reshape(-1, vocab_size), targets.view(-1))


model = BigramMLP()
optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate)
for epoch in range(args.epochs):
    for it in range(args.iters):
        xb, yb = get_batch()
        loss = model(xb, yb)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if it % 10 == 0:
            print(f"iter {epoch * args.iters + it}: loss {loss.item():.4f}")
