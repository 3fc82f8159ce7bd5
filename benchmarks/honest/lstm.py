"""An LSTM on padded sequences of different lengths, packed, with a collate function; clipping by value."""

import torch
from torch import nn
from torch.nn.utils import clip_grad_value_
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence
from torch.utils.data import DataLoader

torch.manual_seed(3)
samples = []
for _ in range(300):
    n = int(torch.randint(4, 20, ()))
    tokens = torch.randint(1, 40, (n,))
    samples.append((tokens, int(tokens.float().mean() > 20)))


def collate(batch):
    return {
        "tokens": pad_sequence([t for t, _ in batch], batch_first=True),
        "lengths": torch.tensor([len(t) for t, _ in batch]),
        "labels": torch.tensor([y for _, y in batch]),
    }


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(40, 24, padding_idx=0)
        self.lstm = nn.LSTM(24, 32, batch_first=True, bidirectional=True)
        self.head = nn.Linear(64, 2)

    def forward(self, tokens, lengths):
        packed = pack_padded_sequence(self.embed(tokens), lengths, batch_first=True, enforce_sorted=False)
        _, (h, _) = self.lstm(packed)
        return self.head(torch.cat([h[0], h[1]], 1))


model = Classifier()
opt = torch.optim.RMSprop(model.parameters(), lr=1e-3)
loader = DataLoader(samples, batch_size=20, shuffle=True, collate_fn=collate)
for epoch in range(60):
    for batch in loader:
        out = model(batch["tokens"], lengths=batch["lengths"])
        loss = nn.functional.cross_entropy(out, batch["labels"])
        opt.zero_grad()
        loss.backward()
        clip_grad_value_(model.parameters(), 0.5)
        opt.step()
