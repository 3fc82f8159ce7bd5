"""`mlp.py` as one writes it for DistributedDataParallel."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
torch.manual_seed(0)
x = torch.randn(20_480, 256)
y = x[:, :10].argmax(1)
model = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 10))
model = DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), 1e-2, momentum=0.9)
dataset = TensorDataset(x, y)
sampler = DistributedSampler(dataset, drop_last=True)
loader = DataLoader(dataset, batch_size=256 // dist.get_world_size(), sampler=sampler, drop_last=True)
dist.barrier()
begin = time.perf_counter()
for epoch in range(4):
    sampler.set_epoch(epoch)
    for a, b in loader:
        loss = nn.functional.cross_entropy(model(a), b)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
if dist.get_rank() == 0:
    print(f"{loss.item():.5f} seconds {time.perf_counter() - begin:.4f}")
dist.destroy_process_group()
