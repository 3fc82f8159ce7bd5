"""A contrastive loss over all pairs of the batch, two calls in each step, gradients accumulated over three."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(3)
model = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 8))
optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
loader = DataLoader(TensorDataset(torch.randn(150, 16)), batch_size=21, shuffle=True)
for epoch in range(3):
    total = 0.0
    for i, (a,) in enumerate(loader):
        z1 = nn.functional.normalize(model(a + 0.1), dim=1)
        z2 = nn.functional.normalize(model(a * 1.1), dim=1)
        loss = nn.functional.cross_entropy(z1 @ z2.T / 0.1, torch.arange(len(a))) / 3
        loss.backward()
        if i % 3 == 2:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        total += loss.item()
    schedule.step(total)
    print(f"{epoch} {total:.6f} {optimizer.param_groups[0]['lr']:.2e}")
