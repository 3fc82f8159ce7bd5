"""Rows of a table as dictionaries, split at random, drawn by weight; two heads with two losses."""

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, WeightedRandomSampler, random_split


class Table(Dataset):
    def __init__(self):
        rng = np.random.default_rng(8)
        self.columns = rng.normal(size=(400, 12)).astype(np.float32)
        self.price = self.columns[:, :3].sum(1) + 0.1 * rng.normal(size=400).astype(np.float32)
        self.sold = self.columns[:, 3] > 0

    def __len__(self):
        return len(self.columns)

    def __getitem__(self, index):
        row = self.columns[index]
        log = np.sign(row) * np.log1p(np.abs(row))
        return {"row": log, "price": self.price[index], "sold": float(self.sold[index]), "name": f"item {index}"}


torch.manual_seed(24)
train, rest = random_split(Table(), [320, 80])
sampler = WeightedRandomSampler(torch.linspace(0.5, 1.5, 320), 320)
loader = DataLoader(train, batch_size=20, sampler=sampler)
body = nn.Sequential(nn.Linear(12, 24), nn.Tanh(), nn.Dropout(0.1))
heads = nn.ModuleList([nn.Linear(24, 1), nn.Linear(24, 1)])
opt = torch.optim.RMSprop([*body.parameters(), *heads.parameters()], lr=1e-3)
for epoch in range(30):
    for batch in loader:
        found = body(batch["row"])
        loss = nn.functional.mse_loss(heads[0](found).squeeze(1), batch["price"])
        sold = batch["sold"].float()
        loss = loss + nn.functional.binary_cross_entropy_with_logits(heads[1](found).squeeze(1), sold)
        opt.zero_grad()
        loss.backward()
        opt.step()
