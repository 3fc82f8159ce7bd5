"""Click-through prediction for supermarket coupons (wide numeric part + categorical embeddings)."""
import time

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import Dataset, DataLoader

N_ROWS = 160_000
N_NUM = 13
CARDINALITIES = [24, 7, 1200, 5000, 90, 31, 12, 400]
EPOCHS = 10
BATCH = 1024

torch.manual_seed(7)
rng = np.random.default_rng(7)


def make_table():
    num = rng.lognormal(0, 1, (N_ROWS, N_NUM)).astype(np.float32)
    num = np.log1p(num)
    cat = np.stack([rng.zipf(1.4, N_ROWS) % c for c in CARDINALITIES], axis=1).astype(np.int64)
    weights = [rng.normal(0, 0.7, c) for c in CARDINALITIES]
    logit = num @ rng.normal(0, 0.4, N_NUM) - 2.0
    for j, w in enumerate(weights):
        logit += w[cat[:, j]]
    clicked = (rng.random(N_ROWS) < 1 / (1 + np.exp(-logit))).astype(np.float32)
    return torch.from_numpy(num), torch.from_numpy(cat), torch.from_numpy(clicked)


class CouponRows(Dataset):
    def __init__(self, num, cat, target):
        self.num = num
        self.cat = cat
        self.target = target

    def __len__(self):
        return self.target.shape[0]

    def __getitem__(self, idx):
        return self.num[idx], self.cat[idx], self.target[idx]  # <<


class CouponNet(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.emb = nn.ModuleList(nn.Embedding(c, dim) for c in CARDINALITIES)
        self.mlp = nn.Sequential(
            nn.Linear(N_NUM + dim * len(CARDINALITIES), 96), nn.ReLU(),
            nn.Linear(96, 48), nn.ReLU(), nn.Linear(48, 1))

    def forward(self, num, cat):
        parts = [num] + [e(cat[:, j]) for j, e in enumerate(self.emb)]
        return self.mlp(torch.cat(parts, 1)).squeeze(-1)


def log_loss(model, num, cat, y):
    model.eval()
    with torch.no_grad():
        return nn.functional.binary_cross_entropy_with_logits(model(num, cat), y).item()


num, cat, y = make_table()
split = int(N_ROWS * 0.9)
train_set = CouponRows(num[:split], cat[:split], y[:split])
loader = DataLoader(train_set, batch_size=BATCH, shuffle=True, drop_last=True)  # <<

model = CouponNet()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
criterion = nn.BCEWithLogitsLoss()

for epoch in range(EPOCHS):
    model.train()
    tic = time.time()
    total, seen = 0.0, 0
    for bnum, bcat, by in loader:  # <<
        optimizer.zero_grad()
        loss = criterion(model(bnum, bcat), by)
        loss.backward()
        optimizer.step()
        total += loss.item() * len(by)
        seen += len(by)
    valid = log_loss(model, num[split:], cat[split:], y[split:])
    print(f"epoch {epoch:02d} | train {total / seen:.4f} | valid {valid:.4f} | {seen / (time.time() - tic):,.0f} rows/s")
