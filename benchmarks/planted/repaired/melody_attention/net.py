import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.maps = []

    def forward(self, x):
        n, t, c = x.shape
        q, k, v = self.qkv(x).view(n, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        weights = (q @ k.transpose(2, 3) / (c // self.heads) ** 0.5).softmax(3)
        self.maps.append(weights.detach().mean(0))
        return self.out((weights @ v).transpose(1, 2).reshape(n, t, c))


class Melody(nn.Module):
    def __init__(self, notes=64, width=64, layers=3):
        super().__init__()
        self.embed = nn.Embedding(notes, width)
        self.place = nn.Parameter(0.02 * torch.randn(32, width))
        self.blocks = nn.ModuleList(Attention(width, 4) for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(layers))
        self.head = nn.Linear(width, notes)

    def forward(self, tune):
        x = self.embed(tune) + self.place
        for norm, block in zip(self.norms, self.blocks):
            x = x + block(norm(x))
        return self.head(x)

    def focus(self):
        """How sharply each layer looked, averaged since the last call."""
        sharp = []
        for block in self.blocks:
            sharp.append(torch.stack(block.maps).detach().mean(0).amax(-1).mean().item())
            block.maps.clear()
        return sharp
