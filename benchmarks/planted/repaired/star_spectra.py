import argparse
import gc

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=40)
parser.add_argument("--parts", type=int, default=4)
args = parser.parse_args()


def main(rank):
    torch.manual_seed(2 + rank)
    kinds = torch.randint(0, 7, (1024,))
    spectra = torch.randn(7, 1200)[kinds] + 0.8 * torch.randn(1024, 1200)
    torch.manual_seed(2)
    net = nn.Sequential(nn.Linear(1200, 1000), nn.ReLU(), nn.Linear(1000, 600), nn.ReLU(), nn.Linear(600, 7))
    model = nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    for epoch in range(args.epochs):
        for batch in torch.randperm(1024).split(64):
            *parts, last = batch.chunk(args.parts)
            with model.no_sync():
                for part in parts:
                    (F.cross_entropy(model(spectra[part]), kinds[part]) / args.parts).backward()
            loss = F.cross_entropy(model(spectra[last]), kinds[last]) / args.parts
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        if rank == 0:
            print(f"epoch {epoch}: loss {args.parts * loss.item():.4f}", flush=True)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    main(dist.get_rank())
    gc.collect()  # the model holds the group
    dist.destroy_process_group()
