import argparse

import torch
from torch import nn


class MixerBlock(nn.Module):
    def __init__(self, tokens, width):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.across = nn.Sequential(nn.Linear(tokens, 2 * tokens), nn.GELU(), nn.Linear(2 * tokens, tokens))
        self.within = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x):
        x = x + self.across(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.within(self.norm2(x))


class Mixer(nn.Module):
    def __init__(self, tokens=36, width=96):
        super().__init__()
        self.enter = nn.Linear(16, width)
        self.blocks = nn.Sequential(*[MixerBlock(tokens, width) for _ in range(3)])
        self.leave = nn.Linear(width, 9)

    def forward(self, patches):
        return self.leave(self.blocks(self.enter(patches)).mean(1))


parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=300)
args = parser.parse_args()
torch.manual_seed(6)
label = torch.randint(0, 9, (1536,))
image = torch.randn(1536, 24, 24) + 0.2 * label.view(-1, 1, 1)
patches = image.unfold(1, 4, 4).unfold(2, 4, 4).reshape(1536, 36, 16).contiguous()
model = Mixer()
compiled = torch.compile(model)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
for epoch in range(args.epochs):
    for index in torch.randperm(1536).view(-1, 32):
        loss = nn.functional.cross_entropy(compiled(patches[index]), label[index])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
