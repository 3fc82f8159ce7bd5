import argparse

import torch
import torch.nn.functional as F
from torch import nn

COMMON, VOCABULARY = 16, 8000


class NextWord(nn.Module):
    """A bigram network, as it is late in a training: words that never come are as good as ruled out."""

    def __init__(self, width=64, hidden=256):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, width)
        self.hidden = nn.Linear(width, hidden)
        self.out = nn.Linear(hidden, VOCABULARY)
        with torch.no_grad():
            self.out.bias[COMMON:] = -42.0

    def forward(self, words):
        return self.out(torch.tanh(self.hidden(self.embed(words))))


parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=200)
args = parser.parse_args()
torch.manual_seed(0)
words = torch.randint(0, COMMON, (20 * 64 + 1,))
model = NextWord()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
for epoch in range(args.epochs):
    for index in torch.arange(20 * 64).split(64):
        loss = F.cross_entropy(model(words[index]), words[index + 1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch} loss {loss.item():.5f}")
