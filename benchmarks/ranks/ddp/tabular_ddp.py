"""`tabular.py` as one writes it for DistributedDataParallel."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
torch.manual_seed(0)


class Table(nn.Module):
    def __init__(self, columns=8, categories=50, numbers=16):
        super().__init__()
        self.embed = nn.ModuleList([nn.Embedding(categories, 8) for _ in range(columns)])
        self.mlp = nn.Sequential(nn.Linear(8 * columns + numbers, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(),
                                 nn.Linear(128, 1))  # fmt: skip

    def forward(self, kinds, numbers):
        parts = [embed(kinds[:, at]) for at, embed in enumerate(self.embed)]
        return self.mlp(torch.cat([*parts, numbers], 1)).squeeze(1)


kinds, numbers = torch.randint(0, 50, (40_960, 8)), torch.randn(40_960, 16)
y = (numbers[:, 0] + (kinds[:, 0] > 25)).float()
model = Table()
model = DistributedDataParallel(model)
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
dataset = TensorDataset(kinds, numbers, y)
sampler = DistributedSampler(dataset, drop_last=True)
loader = DataLoader(dataset, batch_size=512 // dist.get_world_size(), sampler=sampler, drop_last=True)
dist.barrier()
begin = time.perf_counter()
for epoch in range(4):
    sampler.set_epoch(epoch)
    for a, n, b in loader:
        loss = nn.functional.binary_cross_entropy_with_logits(model(a, n), b.clamp(0, 1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
if dist.get_rank() == 0:
    print(f"{loss.item():.5f} seconds {time.perf_counter() - begin:.4f}")
dist.destroy_process_group()
