# PINN: deflection of a clamped membrane under a load,  -laplace(u) = f  on the unit square.
import math

import torch
from torch import nn

torch.manual_seed(2)


class Deflection(nn.Module):
    def __init__(self, width=40):
        super().__init__()
        self.inner = nn.Sequential(
            nn.Linear(2, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1)
        )

    def forward(self, p):
        x, y = p[..., 0], p[..., 1]
        hard = x * (1 - x) * y * (1 - y)  # zero on the rim
        return hard * self.inner(p).squeeze(-1)


def load(p):
    return 5 * math.pi ** 2 * torch.sin(math.pi * p[:, 0]) * torch.sin(2 * math.pi * p[:, 1])


def exact(p):
    return torch.sin(math.pi * p[:, 0]) * torch.sin(2 * math.pi * p[:, 1])


def laplacian(u, pts):
    values = []
    for p in pts:  # <<
        h = torch.autograd.functional.hessian(u, p, create_graph=True)  # <<
        values.append(h.diagonal().sum())
    return torch.stack(values)


def strong_form_loss(u, pts):
    return ((-laplacian(u, pts) - load(pts)) ** 2).mean()  # <<


net = Deflection()
optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 100, gamma=0.5)
check = torch.rand(2000, 2)

for it in range(170):
    interior = torch.rand(32, 2)
    loss = strong_form_loss(net, interior)  # <<
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    if it % 20 == 0:
        with torch.no_grad():
            rel = (net(check) - exact(check)).norm() / exact(check).norm()
        print(f"it {it:4d}  residual {loss.item():9.3f}  rel. error {rel.item():.3f}", flush=True)
print("finished")
