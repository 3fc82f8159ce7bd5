import argparse
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SHARD = 128


def write_shards(folder, num_shards=6, length=600):
    rng = np.random.default_rng(0)
    for k in range(num_shards):
        label = rng.integers(0, 2, SHARD)
        trace = rng.normal(0, 1, (SHARD, 3, length)).astype(np.float32)
        trace[label == 1, :, 250:350] *= 2.5
        np.savez(folder / f"shard{k}.npz", trace=trace, label=label)


class Traces(Dataset):
    def __init__(self, folder):
        self.files = sorted(folder.glob("*.npz"))
        self.shards = {}

    def __len__(self):
        return len(self.files) * SHARD

    def __getitem__(self, i):
        if i // SHARD not in self.shards:
            self.shards[i // SHARD] = dict(np.load(self.files[i // SHARD]))
        shard = self.shards[i // SHARD]
        trace = shard["trace"][i % SHARD]
        label = shard["label"][i % SHARD]
        shift = int(torch.randint(0, 88, ()))
        return torch.from_numpy(trace[:, shift : shift + 512].copy()), torch.tensor(float(label))


class Picker(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv1d(3, 32, 9, 2), nn.ReLU(), nn.Conv1d(32, 48, 9, 2), nn.ReLU(), nn.Conv1d(48, 64, 9, 2), nn.ReLU(),
        )
        self.head = nn.Linear(64, 1)

    def forward(self, x):
        return self.head(self.net(x).amax(2)).squeeze(1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=200)
    args = parser.parse_args()
    torch.manual_seed(0)
    folder = Path(tempfile.mkdtemp())
    write_shards(folder)
    loader = DataLoader(Traces(folder), batch_size=24, shuffle=True)
    model = Picker()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(args.epochs):
        for trace, label in loader:
            loss = nn.functional.binary_cross_entropy_with_logits(model(trace), label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print("epoch", epoch, "loss", round(loss.item(), 4))
