import random

import torch


def random_molecule(rnd):
    num_atoms = rnd.randint(8, 20)
    atoms = [rnd.randint(0, 9) for _ in range(num_atoms)]
    edges = [(i, rnd.randrange(i)) for i in range(1, num_atoms)]
    edges += [(rnd.randrange(num_atoms), rnd.randrange(num_atoms)) for _ in range(6)]
    target = sum(atoms) / 50 + len(set(edges)) / 25
    return {"atoms": atoms, "edges": edges, "target": target}


def molecules(n, seed=0):
    rnd = random.Random(seed)
    return [random_molecule(rnd) for _ in range(n)]


def collate_graphs(graphs):
    size = max(len(g["atoms"]) for g in graphs)
    atoms = torch.zeros(len(graphs), size, dtype=torch.long)
    adjacency = torch.zeros(len(graphs), size, size)
    for b, g in enumerate(graphs):
        for i, kind in enumerate(g["atoms"]):  # <<
            atoms[b, i] = kind + 1  # <<
        for i, j in g["edges"]:  # <<
            adjacency[b, i, j] = 1.0  # <<
            adjacency[b, j, i] = 1.0  # <<
    return atoms, adjacency, torch.tensor([g["target"] for g in graphs])
