# %% [markdown]
# Length of stay from admission records: 12 categorical and 20 numeric columns, residual MLP, early stopping.

# %%
import copy
import json
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
import torch.nn.functional as F

out_dir = Path(tempfile.mkdtemp(prefix="hospital_stay_"))
rng = np.random.default_rng(77)
torch.manual_seed(77)

# %%
ROWS = 60_000
CARDS = [2, 5, 8, 12, 20, 30, 45, 60, 7, 4, 100, 300]
cats = np.stack([rng.integers(0, c, ROWS) for c in CARDS], 1)
nums = rng.standard_normal((ROWS, 20))
effects = [rng.normal(0, 0.3, c) for c in CARDS]
log_days = 1.2 + sum(e[cats[:, j]] for j, e in enumerate(effects)) + 0.3 * nums[:, 0] - 0.2 * nums[:, 1] * nums[:, 2]
days = np.exp(log_days + rng.normal(0, 0.3, ROWS)).clip(0.1, 120)
missing = rng.random(nums.shape) < 0.08
nums[missing] = 0.0

x_num = torch.tensor(np.concatenate([nums, missing], 1), dtype=torch.float32)
x_cat = torch.from_numpy(cats)
target = torch.tensor(np.log1p(days), dtype=torch.float32)
order = torch.randperm(ROWS)
tr, va, te = order.split([48_000, 6_000, 6_000])
mean, std = target[tr].mean(), target[tr].std()
target = (target - mean) / std


# %%
class Residual(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm, self.a, self.b = nn.LayerNorm(d), nn.Linear(d, 2 * d), nn.Linear(2 * d, d)

    def forward(self, x):
        return x + F.dropout(self.b(F.relu(self.a(self.norm(x)))), 0.1, self.training)


class StayNet(nn.Module):
    def __init__(self, d=192, blocks=3):
        super().__init__()
        self.emb = nn.ModuleList(nn.Embedding(c, min(16, c // 2 + 1)) for c in CARDS)
        width = sum(e.embedding_dim for e in self.emb) + x_num.shape[1]
        self.inp = nn.Linear(width, d)
        self.blocks = nn.Sequential(*[Residual(d) for _ in range(blocks)])
        self.out = nn.Linear(d, 1)

    def forward(self, num, cat):
        cols = [num]
        for j, e in enumerate(self.emb):
            cols.append(e(cat[:, j]))
        return self.out(self.blocks(self.inp(torch.cat(cols, 1)))).squeeze(1)


def mae_days(net, rows):
    net.eval()
    with torch.no_grad():
        pred = torch.cat([net(x_num[r], x_cat[r]) for r in rows.split(2000)])
    net.train()
    back = lambda v: torch.expm1(v * std + mean)  # noqa: E731
    return (back(pred) - back(target[rows])).abs().mean().item()


# %%
net = StayNet()
opt = torch.optim.AdamW(net.parameters(), lr=1.5e-3, weight_decay=1e-3, fused=True)
best, best_state, patience, log = float("inf"), None, 0, []
for epoch in range(9):
    t0, running = time.time(), []
    for rows in tr[torch.randperm(len(tr))].split(256):
        loss = F.smooth_l1_loss(net(x_num[rows], x_cat[rows]), target[rows])
        opt.zero_grad()
        loss.backward()
        opt.step()
        running.append(loss.item())
    val = mae_days(net, va)
    log.append({"epoch": epoch, "loss": round(float(np.mean(running)), 5), "val_mae_days": round(val, 4)})
    (out_dir / "log.json").write_text(json.dumps(log, indent=1))
    torch.save({"model": net.state_dict(), "opt": opt.state_dict(), "epoch": epoch}, out_dir / "last.pt")
    if val < best:
        best, best_state, patience = val, copy.deepcopy(net.state_dict()), 0
    else:
        patience += 1
    print(log[-1], f"{time.time() - t0:.1f}s", flush=True)
    if patience == 4:
        break

# %%
net.load_state_dict(best_state)
print("test MAE (days):", round(mae_days(net, te), 4))
