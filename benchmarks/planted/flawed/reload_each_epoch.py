import argparse
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset


def write_shards(folder, shards=4, rows=6144, columns=80):
    rng = np.random.default_rng(0)
    w = rng.normal(size=columns)
    for s in range(shards):
        x = rng.normal(3, 2, (rows, columns)).astype(np.float32).round(2)
        np.savez_compressed(folder / f"part{s}.npz", x=x, y=(x @ w > 3 * w.sum()).astype(np.float32))


def make_loader(folder, batch):
    xs, ys = [], []
    for path in sorted(folder.glob("part*.npz")):
        shard = np.load(path)
        xs.append(shard["x"])  # <<
        ys.append(shard["y"])  # <<
    x = np.concatenate(xs)  # <<
    low, high = np.percentile(x, [1, 99], axis=0)  # <<
    x = np.clip((x - low) / (high - low), 0, 1)  # <<
    data = TensorDataset(torch.from_numpy(x.astype(np.float32)), torch.from_numpy(np.concatenate(ys)))
    return DataLoader(data, sampler=BatchSampler(RandomSampler(data), batch, False), batch_size=None)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=200)
    args = parser.parse_args()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as tmp:
        folder = Path(tmp)
        write_shards(folder)
        model = nn.Sequential(nn.Linear(80, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 1))
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        for epoch in range(args.epochs):
            loader = make_loader(folder, 512)  # <<
            for x, y in loader:
                loss = nn.functional.binary_cross_entropy_with_logits(model(x).squeeze(1), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
