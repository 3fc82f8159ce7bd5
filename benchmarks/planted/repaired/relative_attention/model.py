import torch
from torch import nn


class RelativeBias(nn.Module):
    """One learnt number for each head and clipped distance."""

    def __init__(self, heads, reach):
        super().__init__()
        self.reach = reach
        self.table = nn.Embedding(2 * reach + 1, heads)

    def forward(self, length):
        position = torch.arange(length)
        distance = (position[:, None] - position[None]).clamp(-self.reach, self.reach)
        return self.table(distance + self.reach).permute(2, 0, 1)


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.bias = RelativeBias(heads, 8)

    def forward(self, x):
        b, t, w = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, w // self.heads).permute(2, 0, 3, 1, 4)
        mask = torch.full((t, t), float("-inf")).triu(1) + self.bias(t)
        attended = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.out(attended.transpose(1, 2).reshape(b, t, w))


class TinyLM(nn.Module):
    def __init__(self, vocab, width, heads, length):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.head = nn.Linear(width, vocab)

    def forward(self, tokens):
        x = self.embed(tokens)
        x = x + self.attention(self.norm1(x))
        x = x + self.mlp(self.norm2(x))
        return self.head(x)
