"""`cnn.py` as one writes it for DistributedDataParallel: each rank normalizes alone, torch has no other on a CPU."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
torch.manual_seed(0)
x = torch.randn(2_560, 3, 32, 32)
y = (x.mean((2, 3)) * 40).long().sum(1) % 10


def block(before, after, stride):
    return nn.Conv2d(before, after, 3, stride, 1, bias=False), nn.BatchNorm2d(after), nn.ReLU()


layers = *block(3, 16, 1), *block(16, 32, 2), *block(32, 64, 2), *block(64, 64, 1)
model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))
model = DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9, weight_decay=5e-4)
dataset = TensorDataset(x, y)
sampler = DistributedSampler(dataset, drop_last=True)
loader = DataLoader(dataset, batch_size=32 // dist.get_world_size(), sampler=sampler, drop_last=True)
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
