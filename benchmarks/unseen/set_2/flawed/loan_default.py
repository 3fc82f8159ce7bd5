#!/usr/bin/env python
# coding: utf-8

# # Loan default, tabular baseline
# exported from the notebook, 3 categorical + 24 numeric columns

# In[1]:
import time
import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset, DataLoader

SEED = 2024
rng = np.random.default_rng(SEED)
torch.manual_seed(SEED)

# In[2]:
N = 120_000
num = rng.standard_normal((N, 24)).astype(np.float32)
purpose = rng.integers(0, 14, N)
state = rng.integers(0, 51, N)
grade = rng.integers(0, 7, N)
w = rng.standard_normal(24) * 0.4
logit = num @ w + 0.3 * grade - 1.8 + 0.5 * np.sin(num[:, 0] * num[:, 1]) + 0.2 * (purpose % 3)
target = (rng.random(N) < 1 / (1 + np.exp(-logit))).astype(np.float32)
print("rows", N, "positives", round(float(target.mean()), 3))

# In[3]:
split = int(N * 0.85)


class LoanDataset(Dataset):
    def __init__(self, lo, hi):
        self.num = num[lo:hi]
        self.cat = np.stack([purpose, state, grade], 1)[lo:hi]
        self.y = target[lo:hi]

    def __len__(self):
        return len(self.y)

    def __getitem__(self, idx):  # <<
        return {  # <<
            "num": torch.tensor(self.num[idx], dtype=torch.float32),  # <<
            "cat": torch.tensor(self.cat[idx], dtype=torch.long),  # <<
            "y": torch.tensor(self.y[idx], dtype=torch.float32),  # <<
        }


train_dl = DataLoader(LoanDataset(0, split), batch_size=1024, shuffle=True, drop_last=True)  # <<
valid_dl = DataLoader(LoanDataset(split, N), batch_size=4096)

# In[4]:


class TabularNet(nn.Module):
    def __init__(self, cards=(14, 51, 7), dims=(6, 12, 4), n_num=24, hidden=(256, 128, 64), p=0.1):
        super().__init__()
        self.embs = nn.ModuleList(nn.Embedding(c, d) for c, d in zip(cards, dims))
        self.bn = nn.BatchNorm1d(n_num)
        layers, d = [], sum(dims) + n_num
        for h in hidden:
            layers += [nn.Linear(d, h), nn.ReLU(), nn.BatchNorm1d(h), nn.Dropout(p)]
            d = h
        self.mlp = nn.Sequential(*layers, nn.Linear(d, 1))

    def forward(self, num, cat):
        e = [emb(cat[:, j]) for j, emb in enumerate(self.embs)]
        return self.mlp(torch.cat([self.bn(num)] + e, 1)).squeeze(1)


model = TabularNet()
opt = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-4)
crit = nn.BCEWithLogitsLoss()
EPOCHS = 10
sched = torch.optim.lr_scheduler.OneCycleLR(opt, 3e-3, total_steps=EPOCHS * len(train_dl))


def auc(scores, labels):
    order = torch.argsort(scores)
    ranks = torch.empty_like(scores)
    ranks[order] = torch.arange(1, len(scores) + 1, dtype=scores.dtype)
    pos = labels > 0.5
    n1, n0 = pos.sum().double(), (~pos).sum().double()
    return ((ranks[pos].double().sum() - n1 * (n1 + 1) / 2) / (n1 * n0)).item()


# In[5]:
for epoch in range(EPOCHS):
    tic = time.time()
    model.train()
    losses = []
    for batch in train_dl:
        out = model(batch["num"], batch["cat"])
        loss = crit(out, batch["y"])
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        losses.append(loss.item())
    model.eval()
    s, t = [], []
    with torch.no_grad():
        for batch in valid_dl:
            s.append(model(batch["num"], batch["cat"]))
            t.append(batch["y"])
    print(f"epoch {epoch:2d} | train bce {np.mean(losses):.4f} | valid auc {auc(torch.cat(s), torch.cat(t)):.4f}"
          f" | {time.time() - tic:.1f}s")
