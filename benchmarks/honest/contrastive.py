"""Contrastive learning: two views of each sample, one forward pass over both, a temperature that is learned."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(15)


class Views(Dataset):
    def __init__(self):
        self.x = torch.randn(360, 24)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return [self.x[i] * (torch.arange(24) % 3 != 0), self.x[i] * (torch.arange(24) % 3 != 1)]


net = nn.Sequential(nn.Linear(24, 64), nn.LayerNorm(64), nn.GELU(), nn.Linear(64, 16))
temperature = nn.Parameter(torch.tensor(2.0))
opt = torch.optim.Adam([*net.parameters(), temperature], lr=1e-3)
for epoch in range(60):
    for one, other in DataLoader(Views(), batch_size=40, shuffle=True):
        z = F.normalize(net(torch.cat([one, other])), dim=1)
        a, b = z.chunk(2)
        logits = a @ b.T * temperature.exp()
        loss = F.cross_entropy(logits, torch.arange(len(a)))
        opt.zero_grad()
        loss.backward()
        opt.step()
