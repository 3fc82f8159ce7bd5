"""`transformer.py` as one writes it for DistributedDataParallel."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
torch.manual_seed(0)


class Model(nn.Module):
    def __init__(self, words=200, width=96, length=48):
        super().__init__()
        self.embed, self.place = nn.Embedding(words, width), nn.Embedding(length, width)
        self.register_buffer("mask", torch.full((length, length), float("-inf")).triu(1))
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, words)

    def forward(self, tokens):
        x = self.embed(tokens) + self.place.weight[: tokens.shape[1]]
        return self.head(self.blocks(x, mask=self.mask, is_causal=True))


text = torch.randint(0, 200, (60_000,)).sort().values
starts = torch.randint(0, 60_000 - 49, (5_120,))
x = torch.stack([text[start : start + 48] for start in starts.tolist()])
y = torch.stack([text[start + 1 : start + 49] for start in starts.tolist()])
model = Model()
model = DistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters(), 3e-4)
dataset = TensorDataset(x, y)
sampler = DistributedSampler(dataset, drop_last=True)
loader = DataLoader(dataset, batch_size=16 // dist.get_world_size(), sampler=sampler, drop_last=True)
dist.barrier()
begin = time.perf_counter()
for epoch in range(1):
    sampler.set_epoch(epoch)
    for a, b in loader:
        loss = nn.functional.cross_entropy(model(a).flatten(0, 1), b.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
if dist.get_rank() == 0:
    print(f"{loss.item():.5f} seconds {time.perf_counter() - begin:.4f}")
dist.destroy_process_group()
