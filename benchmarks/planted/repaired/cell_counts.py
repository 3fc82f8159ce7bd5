import argparse
import gc
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=40)
args = parser.parse_args()


def cells(n):
    """Return pictures of some round cells each, and how many they are."""
    counts = torch.randint(1, 6, (n,))
    y, x = torch.meshgrid(torch.arange(48.0), torch.arange(48.0), indexing="ij")
    pictures = 0.2 * torch.randn(n, 1, 48, 48)
    for picture, count in zip(pictures, counts.tolist(), strict=True):
        for _ in range(count):
            top, left = (4 + 40 * torch.rand(2)).tolist()
            picture += torch.exp(-((y - top) ** 2 + (x - left) ** 2) / 8)
    return pictures, counts.float()


def main(rank):
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // dist.get_world_size()))
    torch.manual_seed(9 + rank)
    pictures, counts = cells(512)
    net = nn.Sequential(
        nn.Conv2d(1, 16, 5, 2, 2), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(4608, 1)
    )
    model = nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(args.epochs):
        for batch in torch.randperm(512).split(32):
            loss = F.mse_loss(model(pictures[batch])[:, 0], counts[batch])
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
