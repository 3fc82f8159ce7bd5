"""A script that already uses bfloat16 autocast and a gradient scaler that is switched off."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(19)
x = torch.randn(512, 40)
y = (x @ torch.randn(40, 6)).argmax(1)
loader = DataLoader(TensorDataset(x, y), batch_size=64, shuffle=True)
model = nn.Sequential(nn.Linear(40, 128), nn.GELU(), nn.Linear(128, 128), nn.GELU(), nn.Linear(128, 6))
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", enabled=False)
for epoch in range(60):
    for a, b in loader:
        opt.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(model(a), b)
        scaler.scale(loss).backward()
        scaler.unscale_(opt)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(opt)
        scaler.update()
