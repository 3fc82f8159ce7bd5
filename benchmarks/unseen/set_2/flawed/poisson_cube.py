"""PINN for  -lap u = f  on the unit cube in D dimensions, u = 0 on the boundary.

The exact solution is u(x) = prod_i sin(pi x_i).
"""
import math
import time

import torch
from torch import nn

D = 10
INTERIOR = 300
BOUNDARY = 200
ITERATIONS = 450


class Net(nn.Module):
    def __init__(self, width=128, depth=3):
        super().__init__()
        dims = [D] + [width] * depth
        self.hidden = nn.ModuleList(nn.Linear(i, o) for i, o in zip(dims, dims[1:]))
        self.last = nn.Linear(width, 1)

    def forward(self, x):
        for lin in self.hidden:
            x = torch.tanh(lin(x))
        return self.last(x)


def exact(x):
    return torch.sin(math.pi * x).prod(dim=1, keepdim=True)


def source(x):
    return D * math.pi ** 2 * exact(x)


def laplacian(u, x):
    total = 0.0
    for i in range(D):
        du = torch.autograd.grad(u.sum(), x, create_graph=True)[0]  # <<
        total = total + torch.autograd.grad(du[:, i].sum(), x, create_graph=True)[0][:, i:i + 1]
    return total


def sample_boundary(n):
    x = torch.rand(n, D)
    rows = torch.arange(n)
    x[rows, torch.randint(D, (n,))] = torch.randint(2, (n,)).float()
    return x


def relative_error(net, n=4000):
    x = torch.rand(n, D, generator=torch.Generator().manual_seed(99))
    with torch.no_grad():
        return ((net(x) - exact(x)).norm() / exact(x).norm()).item()


def main():
    torch.manual_seed(8)
    net = Net()
    opt = torch.optim.Adam(net.parameters(), lr=2e-3)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, ITERATIONS)
    t0 = time.time()
    for it in range(1, ITERATIONS + 1):
        x = torch.rand(INTERIOR, D, requires_grad=True)
        u = net(x)
        residual = laplacian(u, x) + source(x.detach())  # <<
        pde = (residual / (D * math.pi ** 2)).square().mean()
        bc = net(sample_boundary(BOUNDARY)).square().mean()
        loss = pde + 10 * bc
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        if it % 25 == 0:
            print(f"it {it:5d}  pde {pde.item():.3e}  bc {bc.item():.3e}  "
                  f"rel err {relative_error(net):.3f}  {time.time() - t0:.1f}s")


if __name__ == "__main__":
    main()
