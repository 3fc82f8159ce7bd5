"""Experts that get the rows which a gate sends them: on some ranks one gets none."""

import torch
from torch import nn

torch.manual_seed(15)


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(5, 4)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 2)) for _ in range(4))

    def forward(self, x):
        shares = self.gate(x).softmax(1)
        best, chosen = shares.max(1)
        out = x.new_zeros(len(x), 2)
        for number, expert in enumerate(self.experts):
            rows = chosen == number
            if rows.any():
                out[rows] = expert(x[rows])
        return out * best.unsqueeze(1), shares


model = Experts()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(15):
    x = torch.randn(6, 5)
    out, shares = model(x)
    loss = nn.functional.mse_loss(out, x[:, :2].abs()) + 0.01 * shares.mean(0).pow(2).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"{step} {loss.item():.6f}")
