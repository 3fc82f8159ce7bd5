import argparse
import gc
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=40)
args = parser.parse_args()


class Tiles(Dataset):
    """Tiles of a height map, one file each, and how much of each is under water."""

    def __init__(self, folder, n, on_share):
        self.folder, self.n, self.on_share = Path(folder), n, on_share
        heights = np.random.default_rng(5)
        for index in range(n):
            np.save(self.folder / f"{index}.npy", heights.normal(size=(1, 32, 32)).astype(np.float32).cumsum(1))

    def __len__(self):
        return self.n

    def __getitem__(self, index):
        tile = torch.from_numpy(np.load(self.folder / f"{index}.npy"))
        if self.on_share:
            time.sleep(0.0004)  # <<
        return tile, (tile < 0).float().mean()


def main(rank):
    torch.manual_seed(3)
    with tempfile.TemporaryDirectory() as folder:
        tiles = Tiles(folder, 320, on_share=rank == 1)
        sampler = DistributedSampler(tiles)
        loader = DataLoader(tiles, batch_size=16, sampler=sampler)
        net = nn.Sequential(
            nn.Conv2d(1, 16, 3, 2, 1),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, 2, 1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(2048, 1),
        )
        model = nn.parallel.DistributedDataParallel(net)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        for epoch in range(args.epochs):
            sampler.set_epoch(epoch)
            for x, flooded in loader:
                loss = F.mse_loss(model(x)[:, 0], flooded)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            if rank == 0:
                print(f"epoch {epoch}: loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    main(dist.get_rank())
    gc.collect()  # the model holds the group
    dist.destroy_process_group()
