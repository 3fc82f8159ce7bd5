"""Windows of a memory-mapped token file, a small causal language model, gradients clipped."""

import tempfile

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

WINDOW, WORDS = 24, 40


class Windows(Dataset):
    def __init__(self, path):
        self.tokens = np.memmap(path, dtype=np.uint16, mode="r")

    def __len__(self):
        return (len(self.tokens) - 1) // WINDOW

    def __getitem__(self, index):
        piece = torch.from_numpy(self.tokens[index * WINDOW : (index + 1) * WINDOW + 1].astype(np.int64))
        return {"inputs": piece[:-1], "labels": piece[1:]}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.rnn, self.out = nn.Embedding(WORDS, 24), nn.GRU(24, 32, batch_first=True), nn.Linear(32, WORDS)

    def forward(self, tokens):
        return self.out(self.rnn(self.embed(tokens))[0])


with tempfile.NamedTemporaryFile(suffix=".bin") as file:
    np.random.default_rng(5).integers(0, WORDS, 240 * WINDOW + 1).astype(np.uint16).tofile(file.name)
    torch.manual_seed(22)
    model = Model()
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(30):
        for batch in DataLoader(Windows(file.name), batch_size=16, shuffle=True):
            loss = nn.functional.cross_entropy(model(batch["inputs"]).transpose(1, 2), batch["labels"])
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
