import math
import random

import torch
from torch.utils.data import Dataset

ELEMENTS = ["C", "N", "O", "F", "S", "Cl", "H"]
POLARITY = {"C": 0.0, "N": -1.1, "O": -1.6, "F": -0.4, "S": -0.7, "Cl": -0.3, "H": 0.1}


def random_molecule(rng):
    n = rng.randint(9, 20)
    atoms = [rng.choices(range(len(ELEMENTS)), weights=[50, 12, 14, 4, 4, 4, 12])[0] for _ in range(n)]
    bonds = set()
    for v in range(1, n):
        u = rng.randint(max(0, v - 3), v - 1)
        bonds.add((u, v))
    for _ in range(rng.randint(0, 3)):  # rings
        u, v = sorted(rng.sample(range(n), 2))
        bonds.add((u, v))
    energy = 0.0
    for u, v in bonds:
        pu, pv = POLARITY[ELEMENTS[atoms[u]]], POLARITY[ELEMENTS[atoms[v]]]
        energy += pu * pv * 0.6 + 0.3 * (pu + pv)
    energy += math.sin(len(bonds)) * 0.2
    src = [u for u, v in bonds] + [v for u, v in bonds]
    dst = [v for u, v in bonds] + [u for u, v in bonds]
    return torch.tensor(atoms), torch.tensor([src, dst]), torch.tensor(energy)


class SolvationSet(Dataset):
    def __init__(self, size, seed):
        rng = random.Random(seed)
        self.graphs = [random_molecule(rng) for _ in range(size)]

    def __len__(self):
        return len(self.graphs)

    def __getitem__(self, i):
        return self.graphs[i]


def merge(graphs):
    atoms, edges, owner, y = [], [], [], []
    offset = 0
    for k, (a, e, t) in enumerate(graphs):
        atoms.append(a)
        edges.append(e + offset)
        owner.append(torch.full((len(a),), k))
        y.append(t)
        offset += len(a)
    return torch.cat(atoms), torch.cat(edges, 1), torch.cat(owner), torch.stack(y)
