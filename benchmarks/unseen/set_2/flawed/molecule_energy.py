"""Continuous-filter network for conformer energies (SchNet in miniature)."""
import math
import random
import time

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader

SPECIES = [1, 6, 7, 8]
CHARGE_RADIUS = {1: 0.4, 6: 0.8, 7: 0.75, 8: 0.7}


def random_molecule(rng):
    n = int(rng.integers(12, 25))
    z = rng.choice(SPECIES, n, p=[0.5, 0.3, 0.1, 0.1])
    pos = np.zeros((n, 3))
    for i in range(1, n):
        step = rng.normal(size=3)
        pos[i] = pos[rng.integers(0, i)] + 1.4 * step / np.linalg.norm(step)
    r = np.array([CHARGE_RADIUS[int(a)] for a in z])
    d = np.linalg.norm(pos[:, None] - pos[None], axis=-1) + np.eye(n)
    pair = (r[:, None] * r[None]) * (np.exp(-2 * (d - 1.2)) - 2 * np.exp(-(d - 1.2)))
    np.fill_diagonal(pair, 0)
    return {"z": z.tolist(), "pos": pos.tolist(), "energy": float(pair.sum() / n)}


def collate(molecules):
    """Pads a list of molecules; returns species, distances, pair mask and energies."""
    n = max(len(m["z"]) for m in molecules)
    species, distances, masks, energies = [], [], [], []
    for m in molecules:
        k = len(m["z"])
        species.append(m["z"] + [0] * (n - k))
        rows, mask = [], []
        for i in range(n):
            row, mrow = [], []
            for j in range(n):  # <<
                if i < k and j < k and i != j:
                    row.append(math.dist(m["pos"][i], m["pos"][j]))  # <<
                    mrow.append(1.0)
                else:
                    row.append(0.0)
                    mrow.append(0.0)
            rows.append(row)
            mask.append(mrow)
        distances.append(rows)
        masks.append(mask)
        energies.append(m["energy"])
    return (torch.tensor(species), torch.tensor(distances), torch.tensor(masks),  # <<
            torch.tensor(energies))


class Interaction(nn.Module):
    def __init__(self, dim, n_rbf):
        super().__init__()
        self.filter = nn.Sequential(nn.Linear(n_rbf, dim), nn.SiLU(), nn.Linear(dim, dim))
        self.inp = nn.Linear(dim, dim, bias=False)
        self.out = nn.Sequential(nn.Linear(dim, dim), nn.SiLU(), nn.Linear(dim, dim))

    def forward(self, h, rbf, mask):
        w = self.filter(rbf) * mask.unsqueeze(-1)
        return h + self.out((w * self.inp(h).unsqueeze(1)).sum(2))


class MiniSchNet(nn.Module):
    def __init__(self, dim=24, n_rbf=12, layers=2):
        super().__init__()
        self.embed = nn.Embedding(9, dim, padding_idx=0)
        self.register_buffer("centers", torch.linspace(0.5, 6.0, n_rbf))
        self.blocks = nn.ModuleList(Interaction(dim, n_rbf) for _ in range(layers))
        self.readout = nn.Sequential(nn.Linear(dim, dim), nn.SiLU(), nn.Linear(dim, 1))

    def forward(self, z, dist, mask):
        rbf = torch.exp(-4.0 * (dist.unsqueeze(-1) - self.centers) ** 2)
        h = self.embed(z)
        for b in self.blocks:
            h = b(h, rbf, mask)
        atoms = (z > 0).float()
        return (self.readout(h).squeeze(-1) * atoms).sum(1) / atoms.sum(1)


def train(epochs=8, batch=32, n=3000):
    rng = np.random.default_rng(7)
    molecules = [random_molecule(rng) for _ in range(n)]
    mean = sum(m["energy"] for m in molecules) / n
    for m in molecules:
        m["energy"] -= mean
    random.seed(7)
    torch.manual_seed(7)
    loader = DataLoader(molecules, batch_size=batch, shuffle=True, collate_fn=collate, drop_last=True)
    net = MiniSchNet()
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    for epoch in range(1, epochs + 1):
        began = time.time()
        abs_err = 0.0
        for step, (z, dist, mask, energy) in enumerate(loader):
            pred = net(z, dist, mask)
            loss = nn.functional.mse_loss(pred, energy)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            abs_err += (pred.detach() - energy).abs().mean().item()
            if step % 40 == 0:
                print(f"  {epoch}.{step:03d} mse {loss.item():.4f}")
        print(f"epoch {epoch} MAE {abs_err / len(loader):.4f} eV, {time.time() - began:.1f} s")


train()
