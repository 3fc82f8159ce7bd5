import argparse

import torch
import torch.nn.functional as F
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=40)
args = parser.parse_args()
torch.manual_seed(21)
LONGEST = 96


class Stars(nn.Module):
    """How many stars a review gives, from its words."""

    def __init__(self, words=2000, width=64):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.places = nn.Parameter(0.02 * torch.randn(LONGEST, width))
        layer = nn.TransformerEncoderLayer(width, 4, 128, dropout=0.0, batch_first=True)
        self.read = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.stars = nn.Linear(width, 5)

    def forward(self, text, padding):
        h = self.read(self.words(text) + self.places[: text.shape[1]], src_key_padding_mask=padding)
        there = (~padding).unsqueeze(2)
        return self.stars((h * there).sum(1) / there.sum(1))


def reviews(n):
    """Return the words of reviews, filled up with zeros, the length of each, and its stars."""
    lengths = torch.randint(5, 34, (n,))
    stars = torch.randint(0, 5, (n,))
    text = 1 + 399 * stars[:, None] + torch.randint(0, 399, (n, LONGEST))
    text[torch.arange(LONGEST) >= lengths[:, None]] = 0
    return text, lengths, stars


text, lengths, stars = reviews(768)
model = Stars()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(args.epochs):
    for batch in torch.randperm(len(text)).split(24):
        words = text[batch]
        logits = model(words, words == 0)  # <<
        loss = F.cross_entropy(logits, stars[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: loss {loss.item():.3f}")
