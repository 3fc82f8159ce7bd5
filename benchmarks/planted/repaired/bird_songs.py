import argparse
import gc
import random

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=40)
args = parser.parse_args()


class Songs(nn.Module):
    """Which of twelve birds sings, from the frames of a recording."""

    def __init__(self):
        super().__init__()
        self.listen = nn.GRU(24, 64, batch_first=True)
        self.name = nn.Linear(64, 12)

    def forward(self, frames):
        return self.name(self.listen(frames)[0].mean(1))


def songs(n):
    """Return batches of eight songs of one length each, the shortest songs first."""
    draw = torch.Generator().manual_seed(4)
    lengths = sorted(torch.randint(10, 240, (n,), generator=draw).tolist())
    birds = torch.randint(0, 12, (n, 8), generator=draw)
    pitch = torch.randn(12, 24, generator=draw)
    noise = [torch.randn(8, length, 24, generator=draw) for length in lengths]
    return [(pitch[bird][:, None] + each, bird) for each, bird in zip(noise, birds, strict=True)]


def main(rank, ranks):
    torch.manual_seed(6)
    batches = songs(64)
    model = nn.parallel.DistributedDataParallel(Songs())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(args.epochs):
        order = list(range(rank, len(batches), ranks))
        random.Random(100 * epoch).shuffle(order)
        for number in order:
            frames, birds = batches[number]
            loss = F.cross_entropy(model(frames), birds)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch}: loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    main(dist.get_rank(), dist.get_world_size())
    gc.collect()  # the model holds the group
    dist.destroy_process_group()
