"""A small character transformer, AdamW with two parameter groups, warm-up, gradient clipping, tied weights."""

import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(1337)
text = "the quick brown fox jumps over the lazy dog. pack my box with five dozen liquor jugs. " * 30
vocabulary = sorted(set(text))
data = torch.tensor([vocabulary.index(c) for c in text])
T, C = 32, 48


class Windows(Dataset):
    def __len__(self):
        return 520

    def __getitem__(self, i):
        return data[i * 4 : i * 4 + T], data[i * 4 + 1 : i * 4 + T + 1]


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(C), nn.LayerNorm(C)
        self.qkv, self.out = nn.Linear(C, 3 * C), nn.Linear(C, C)
        self.mlp = nn.Sequential(nn.Linear(C, 4 * C), nn.GELU(), nn.Linear(4 * C, C), nn.Dropout(0.1))

    def forward(self, x):
        B = x.shape[0]
        q, k, v = self.qkv(self.n1(x)).view(B, T, 3, 4, C // 4).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(B, T, C))
        return x + self.mlp(self.n2(x))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(len(vocabulary), C), nn.Embedding(T, C)
        self.blocks = nn.Sequential(Block(), Block())
        self.norm, self.head = nn.LayerNorm(C), nn.Linear(C, len(vocabulary), bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, x, y):
        h = self.norm(self.blocks(self.tokens(x) + self.places.weight))
        return F.cross_entropy(self.head(h).flatten(0, 1), y.flatten())


model = Model()
decay = [p for p in model.parameters() if p.dim() > 1]
other = [p for p in model.parameters() if p.dim() < 2]
opt = torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": other, "weight_decay": 0.0}], lr=3e-4)
loader = DataLoader(Windows(), batch_size=16, shuffle=True)
step = 0
for epoch in range(20):
    for x, y in loader:
        for group in opt.param_groups:
            group["lr"] = 3e-3 * min(1, (step + 1) / 20) * 0.5 * (1 + math.cos(step / 700))
        loss = model(x, y)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        step += 1
