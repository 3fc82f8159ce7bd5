# PINN for the viscous Burgers equation  u_t + u u_x = nu u_xx  (periodic initial wave).
import math
import time

import torch
from torch import nn

NU = 0.02 / math.pi
COLLOCATION = 3000
ITERATIONS = 1000

torch.manual_seed(0)


class Wave(nn.Module):
    def __init__(self, width=64, depth=4):
        super().__init__()
        layers = [nn.Linear(2, width), nn.Tanh()]
        for _ in range(depth - 1):
            layers += [nn.Linear(width, width), nn.Tanh()]
        self.net = nn.Sequential(*layers, nn.Linear(width, 1))

    def forward(self, tx):
        return self.net(tx)


def derivative(y, x):
    return torch.autograd.grad(y, x, torch.ones_like(y), create_graph=True)[0]


def residual(model, tx):
    tx = tx.detach().requires_grad_(True)
    u = model(tx)
    du = derivative(u, tx)
    u_t, u_x = du[:, :1], du[:, 1:]
    u_xx = derivative(u_x, tx)[:, 1:]
    return u_t + u * u_x - NU * u_xx


model = Wave()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.995)
x0 = torch.linspace(-1, 1, 256).unsqueeze(1)
initial = torch.cat([torch.zeros_like(x0), x0], 1)
u0 = -torch.sin(math.pi * x0)
rim = torch.cat([torch.rand(200, 1), torch.randint(0, 2, (200, 1)).float() * 2 - 1], 1)

begun = time.time()
history = {"pde": [], "ic": [], "bc": []}
for it in range(1, ITERATIONS + 1):
    inside = torch.rand(COLLOCATION, 2) * torch.tensor([1.0, 2.0]) - torch.tensor([0.0, 1.0])
    optimizer.zero_grad()
    pde = residual(model, inside).square().mean()
    ic = (model(initial) - u0).square().mean()
    bc = model(rim).square().mean()
    loss = pde + 10 * ic + bc
    loss.backward()
    optimizer.step()
    scheduler.step()
    for name, value in (("pde", pde), ("ic", ic), ("bc", bc)):
        history[name].append(value.item())
    if it % 50 == 0:
        recent = {k: sum(v[-50:]) / 50 for k, v in history.items()}
        print(f"{it:4d} " + " ".join(f"{k} {v:.2e}" for k, v in recent.items()) + f" {time.time() - begun:.1f}s", flush=True)
