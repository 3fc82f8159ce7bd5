"""Work enough to be shared: a small language model with dropout, its loss a mean over tokens."""

import torch
from torch import nn

torch.manual_seed(0)


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.norms = heads, nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.attend, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.1))

    def forward(self, x):
        rows, length, width = x.shape
        q, k, v = self.attend(self.norms[0](x)).view(rows, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        seen = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(rows, length, width))
        return x + self.mlp(self.norms[1](x))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.place = nn.Embedding(500, 192), nn.Embedding(128, 192)
        self.blocks, self.head = nn.Sequential(Block(192, 6), Block(192, 6), Block(192, 6)), nn.Linear(192, 500)

    def forward(self, tokens):
        return self.head(self.blocks(self.embed(tokens) + self.place(torch.arange(tokens.shape[1]))))


model = Model()
optimizer = torch.optim.AdamW(model.parameters(), 3e-4)
data = torch.randint(0, 500, (20_000,)).sort().values
for step in range(24):
    starts = torch.randint(0, 20_000 - 129, (16,))
    batch = torch.stack([data[start : start + 129] for start in starts.tolist()])
    loss = nn.functional.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    if step % 6 == 5:
        print(f"{step} {loss.item():.6f}")
