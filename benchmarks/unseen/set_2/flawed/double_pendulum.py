"""Learn the vector field of a double pendulum from short trajectories (neural ODE, RK4)."""
import argparse
import math
import time

import torch
import torch.nn as nn

G = 9.81


def true_field(s):
    """Equal masses and rods of length one; s = (theta1, theta2, omega1, omega2)."""
    a, b, u, v = s.unbind(-1)
    d = a - b
    den = 3 - torch.cos(2 * d)
    du = (-3 * G * torch.sin(a) - G * torch.sin(a - 2 * b)
          - 2 * torch.sin(d) * (v ** 2 + u ** 2 * torch.cos(d))) / den
    dv = 2 * torch.sin(d) * (2 * u ** 2 + 2 * G * torch.cos(a) + v ** 2 * torch.cos(d)) / den
    return torch.stack([u, v, du, dv], -1)


def rk4(f, s, dt, steps):
    path = [s]
    for _ in range(steps):
        k1 = f(s)
        k2 = f(s + dt / 2 * k1)
        k3 = f(s + dt / 2 * k2)
        k4 = f(s + dt * k3)
        s = s + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        path.append(s)
    return torch.stack(path, dim=-2)


class Field(nn.Module):
    def __init__(self, hidden=256):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(),
                                 nn.Linear(hidden, 2))

    def forward(self, s):
        angles, omegas = s[..., :2], s[..., 2:]
        z = torch.cat([angles.sin(), angles.cos(), omegas], -1)
        return torch.cat([omegas, 10 * self.net(z)], -1)


def simulate(n, steps, dt, seed):
    g = torch.Generator().manual_seed(seed)
    s = torch.empty(n, 4)
    s[:, :2] = (torch.rand(n, 2, generator=g) - 0.5) * math.pi
    s[:, 2:] = torch.randn(n, 2, generator=g)
    fine = rk4(true_field, s, dt / 4, steps * 4)
    return fine[:, ::4].contiguous()


def predict(field, starts, dt, steps):
    paths = []
    for s0 in starts:  # <<
        paths.append(rk4(field, s0, dt, steps))  # <<
    return torch.stack(paths)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--trajectories", type=int, default=1200)
    p.add_argument("--steps", type=int, default=6)
    p.add_argument("--dt", type=float, default=0.05)
    p.add_argument("--batch-size", type=int, default=8)
    p.add_argument("--epochs", type=int, default=2)
    p.add_argument("--lr", type=float, default=2e-3)
    args = p.parse_args()

    torch.manual_seed(0)
    data = simulate(args.trajectories, args.steps, args.dt, seed=4)
    field = Field()
    opt = torch.optim.Adam(field.parameters(), lr=args.lr)
    t0 = time.time()
    for epoch in range(args.epochs):
        running = 0.0
        order = torch.randperm(len(data))
        batches = order.split(args.batch_size)
        for i, rows in enumerate(batches):
            truth = data[rows]
            pred = predict(field, truth[:, 0], args.dt, args.steps)  # <<
            loss = (pred - truth).abs().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            running += loss.item()
            if (i + 1) % 25 == 0:
                print(f"  {epoch} {i + 1}/{len(batches)}  L1 {running / (i + 1):.4f}")
        print(f"epoch {epoch}  L1 {running / len(batches):.4f}  elapsed {time.time() - t0:.0f}s")


if __name__ == "__main__":
    main()
