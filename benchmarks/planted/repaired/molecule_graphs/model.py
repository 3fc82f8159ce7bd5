import torch
from torch import nn


class GraphNet(nn.Module):
    """Three rounds of message passing on a dense adjacency, then a sum over atoms."""

    def __init__(self, width=96, rounds=3):
        super().__init__()
        self.embed = nn.Embedding(11, width, padding_idx=0)
        self.rounds = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(rounds))
        self.readout = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, atoms, adjacency):
        h = self.embed(atoms)
        degree = adjacency.sum(-1, keepdim=True).clamp(min=1)
        for layer in self.rounds:
            h = h + torch.relu(layer(torch.cat([h, adjacency @ h / degree], -1)))
        return self.readout((h * (atoms > 0).unsqueeze(-1)).mean(1)).squeeze(-1)
