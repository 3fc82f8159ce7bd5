"""`contrastive.py` as one writes it for DistributedDataParallel."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
torch.manual_seed(0)
x = torch.randn(20_480, 128)
other = x + 0.1 * torch.randn(20_480, 128)
model = nn.Sequential(nn.Linear(128, 512), nn.LayerNorm(512), nn.GELU(), nn.Linear(512, 64))
model = DistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
dataset = TensorDataset(x, other)
sampler = DistributedSampler(dataset, drop_last=True)
loader = DataLoader(dataset, batch_size=256 // dist.get_world_size(), sampler=sampler, drop_last=True)


def everywhere(own):
    """The rows of all ranks, of which gradients pass this rank's, as implementations of SimCLR have it."""
    parts = [torch.zeros_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, own.detach())
    parts[dist.get_rank()] = own
    return torch.cat(parts)


dist.barrier()
begin = time.perf_counter()
for epoch in range(4):
    sampler.set_epoch(epoch)
    for a, b in loader:
        one, two = (everywhere(nn.functional.normalize(model(each), dim=1)) for each in (a, b))
        loss = nn.functional.cross_entropy(one @ two.T / 0.1, torch.arange(len(one))) * dist.get_world_size()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
if dist.get_rank() == 0:
    print(f"{loss.item():.5f} seconds {time.perf_counter() - begin:.4f}")
dist.destroy_process_group()
