import torch
from torch import nn


class NeighbourLayer(nn.Module):
    """h_v <- GRU(mean_{u in N(v)} W h_u, h_v)"""

    def __init__(self, dim):
        super().__init__()
        self.msg = nn.Linear(dim, dim)
        self.update = nn.GRUCell(dim, dim)

    def forward(self, h, edges):
        m = torch.relu(self.msg(h))
        gathered = []
        for v in range(h.size(0)):  # <<
            nbrs = edges[0, edges[1] == v]  # <<
            gathered.append(m[nbrs].mean(dim=0))  # <<
        return self.update(torch.stack(gathered), h)


class SolvationNet(nn.Module):
    def __init__(self, elements, dim=96, depth=3):
        super().__init__()
        self.embed = nn.Embedding(elements, dim)
        self.layers = nn.ModuleList([NeighbourLayer(dim) for _ in range(depth)])
        self.readout = nn.Sequential(nn.Linear(dim, dim), nn.SiLU(), nn.Linear(dim, 1))

    def forward(self, atoms, edges, owner, graphs):
        h = self.embed(atoms)
        for layer in self.layers:
            h = layer(h, edges)  # <<
        per_atom = self.readout(h).squeeze(-1)
        return torch.zeros(graphs).index_add(0, owner, per_atom)
