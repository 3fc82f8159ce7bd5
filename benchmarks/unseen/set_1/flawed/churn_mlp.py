# Churn model for the telco table, exported from the notebook.
import sys
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler

EPOCHS = int(sys.argv[sys.argv.index("--epochs") + 1]) if "--epochs" in sys.argv else 28
SEED = 11
BATCH = 512
torch.manual_seed(SEED)
rng = np.random.default_rng(SEED)

# %% table
N = 80_000
NUMERIC = ["tenure", "monthly", "total", "calls", "minutes_day", "minutes_eve",
           "minutes_night", "intl_minutes", "support_tickets", "late_payments"]
CATEGORICAL = {"contract": 3, "payment": 5, "internet": 4, "region": 40,
               "device": 60, "plan": 25}

table = {}
for name in NUMERIC:
    table[name] = rng.gamma(2.0, 1.0, N).astype(np.float32)
for name, n in CATEGORICAL.items():
    table[name] = rng.integers(0, n, N)
logit = (0.9 * table["support_tickets"] - 0.7 * table["tenure"]
         + 0.5 * (table["contract"] == 0) + 0.3 * table["late_payments"] * (table["plan"] % 3))
table["churned"] = (rng.random(N) < 1 / (1 + np.exp(-(logit - logit.mean())))).astype(np.float32)

# %% standardise the numeric columns, log scale first
numeric = np.stack([np.log1p(table[c]) for c in NUMERIC], axis=1)
numeric = (numeric - numeric.mean(0)) / numeric.std(0)
categorical = np.stack([table[c] for c in CATEGORICAL], axis=1)
X_NUM = torch.from_numpy(numeric.astype(np.float32))
X_CAT = torch.from_numpy(categorical.astype(np.int64))
Y = torch.from_numpy(table["churned"])


# %% dataset
class Customers(Dataset):
    def __init__(self, x_num, x_cat, y):
        self.x_num = x_num
        self.x_cat = x_cat
        self.y = y

    def __len__(self):
        return len(self.y)

    def __getitem__(self, index):
        return {
            "numeric": self.x_num[index],  # <<
            "categorical": self.x_cat[index],  # <<
            "label": self.y[index],  # <<
        }


customers = Customers(X_NUM, X_CAT, Y)
order = RandomSampler(customers, generator=torch.Generator().manual_seed(SEED))
loader = DataLoader(customers, batch_size=BATCH, sampler=order, drop_last=True)  # <<


# %% model: entity embeddings + residual MLP
class ResBlock(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm = nn.LayerNorm(d)
        self.up = nn.Linear(d, 2 * d)
        self.down = nn.Linear(2 * d, d)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


class ChurnNet(nn.Module):
    def __init__(self, d=64):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(n, 12) for n in CATEGORICAL.values())
        self.inp = nn.Linear(len(NUMERIC) + 12 * len(CATEGORICAL), d)
        self.blocks = nn.Sequential(ResBlock(d), ResBlock(d))
        self.out = nn.Linear(d, 1)

    def forward(self, numeric, categorical):
        parts = [numeric] + [t(categorical[:, i]) for i, t in enumerate(self.tables)]
        return self.out(self.blocks(self.inp(torch.cat(parts, 1)))).squeeze(1)


model = ChurnNet()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-2)
scheduler = torch.optim.lr_scheduler.OneCycleLR(
    optimizer, max_lr=4e-3, total_steps=EPOCHS * (N // BATCH) + 1)
criterion = nn.BCEWithLogitsLoss()

# %% training
history = []
for epoch in range(EPOCHS):
    start = time.time()
    losses = []
    for batch in loader:  # <<
        optimizer.zero_grad()
        prediction = model(batch["numeric"], batch["categorical"])
        loss = criterion(prediction, batch["label"])
        loss.backward()
        optimizer.step()
        scheduler.step()
        losses.append(loss.detach())
    history.append(torch.stack(losses).mean().item())
    print("epoch", epoch, "loss %.4f" % history[-1], "seconds %.2f" % (time.time() - start))
