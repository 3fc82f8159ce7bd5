# Poisson equation on an irregular island: -laplace(u) = f inside, u = 0 on the coast.
# Fresh collocation points every epoch, hard boundary by a penalty.
import math
import sys
import time

import numpy as np
import torch

epochs = int(sys.argv[sys.argv.index("--epochs") + 1]) if "--epochs" in sys.argv else 21
torch.manual_seed(0)
rng = np.random.default_rng(12)

# coast line
corners = 48
angle = np.linspace(0, 2 * math.pi, corners, endpoint=False)
reach = 0.75 + 0.12 * np.sin(3 * angle) + 0.06 * np.sin(7 * angle + 1) + 0.03 * rng.standard_normal(corners)
coast = np.stack([reach * np.cos(angle), reach * np.sin(angle)], axis=1)


def inside(x, y, polygon):
    """Ray casting: count the edges crossed by a ray to the right."""
    hit = False
    xj, yj = polygon[-1]
    for xi, yi in polygon:  # <<
        if (yi > y) != (yj > y) and x < (xj - xi) * (y - yi) / (yj - yi) + xi:  # <<
            hit = not hit
        xj, yj = xi, yi  # <<
    return hit


def interior_points(count):
    polygon = coast.tolist()
    points = []
    while len(points) < count:
        x, y = rng.uniform(-1, 1, 2)  # <<
        if inside(x, y, polygon):  # <<
            points.append((x, y))
    return torch.tensor(points, dtype=torch.float32)


def boundary_points(count):
    i = rng.integers(0, corners, count)
    s = rng.random((count, 1))
    return torch.tensor(coast[i] * (1 - s) + coast[(i + 1) % corners] * s, dtype=torch.float32)


def source(p):
    return 10 * torch.exp(-20 * ((p[:, :1] - 0.2) ** 2 + (p[:, 1:] + 0.1) ** 2)) + 2.0


net = torch.nn.Sequential(
    torch.nn.Linear(2, 128), torch.nn.Tanh(),
    torch.nn.Linear(128, 128), torch.nn.Tanh(),
    torch.nn.Linear(128, 128), torch.nn.Tanh(),
    torch.nn.Linear(128, 1),
)
optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=epochs)

points_per_epoch, batch = 24_576, 256
for epoch in range(epochs):
    t0 = time.perf_counter()
    interior = interior_points(points_per_epoch)  # <<
    boundary = boundary_points(points_per_epoch // 4)
    total_pde, total_bc = torch.zeros(()), torch.zeros(())
    batches = list(zip(interior.split(batch), boundary.split(batch // 4)))
    for p, b in batches:
        p.requires_grad_(True)
        u = net(p)
        du = torch.autograd.grad(u.sum(), p, create_graph=True)[0]
        uxx = torch.autograd.grad(du[:, 0].sum(), p, create_graph=True)[0][:, :1]
        uyy = torch.autograd.grad(du[:, 1].sum(), p, create_graph=True)[0][:, 1:]
        pde = (uxx + uyy + source(p.detach())).square().mean()
        bc = net(b).square().mean()
        loss = pde + 100 * bc
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total_pde += pde.detach()
        total_bc += bc.detach()
    scheduler.step()
    n = len(batches)
    print(f"epoch {epoch:3d}  pde {total_pde.item() / n:.4f}  coast {total_bc.item() / n:.5f}  {time.perf_counter() - t0:.2f}s")
