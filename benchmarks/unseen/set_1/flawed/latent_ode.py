"""Neural ODE on noisy predator-prey trajectories, in an augmented state space."""
import argparse
import time

import torch
from torch import nn


class Field(nn.Module):
    def __init__(self, dim, width):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(dim, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(),
                                 nn.Linear(width, dim))

    def forward(self, t, y):
        return self.net(y)


def rk4_step(f, t, h, y):
    k1 = f(t, y)
    k2 = f(t + h / 2, y + h / 2 * k1)
    k3 = f(t + h / 2, y + h / 2 * k2)
    k4 = f(t + h, y + h * k3)
    return y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


def integrate(f, y, times):
    out = [y]
    for t0, t1 in zip(times[:-1], times[1:]):
        y = rk4_step(f, t0, t1 - t0, y)
        out.append(y)
    return torch.stack(out)


class Adjoint(torch.autograd.Function):
    """Gradients by solving the adjoint system backwards in time: O(1) memory in the number of solver steps."""

    substeps = 2

    @staticmethod
    def forward(ctx, f, y0, times, *params):
        with torch.no_grad():
            ys = integrate(f, y0, times)
        ctx.f, ctx.times, ctx.params = f, times, params
        ctx.save_for_backward(ys)
        return ys

    @staticmethod
    def backward(ctx, grad):
        ys, = ctx.saved_tensors
        f, times, params = ctx.f, ctx.times, ctx.params

        def dynamics(t, y, a):
            with torch.enable_grad():
                y = y.detach().requires_grad_(True)
                dy = f(t, y)  # <<
                vjp = torch.autograd.grad(dy, (y, *params), a)  # <<
            return dy.detach(), -vjp[0], [-g for g in vjp[1:]]

        a = grad[-1].clone()
        total = [torch.zeros_like(p) for p in params]
        for i in range(len(times) - 1, 0, -1):
            y = ys[i]
            h = (times[i - 1] - times[i]) / Adjoint.substeps
            for s in range(Adjoint.substeps):  # <<
                t = times[i] + s * h
                ky, ka = torch.zeros_like(y), torch.zeros_like(a)
                dy, da = torch.zeros_like(y), torch.zeros_like(a)
                for c, w in ((0.0, 1 / 6), (0.5, 1 / 3), (0.5, 1 / 3), (1.0, 1 / 6)):
                    ky, ka, kp = dynamics(t + c * h, y + c * h * ky, a + c * h * ka)  # <<
                    dy += w * ky
                    da += w * ka
                    for g, k in zip(total, kp):
                        g += w * h * k
                y, a = y + h * dy, a + h * da
            a = a + grad[i - 1]
        return (None, a, None, *total)


class AugmentedODE(nn.Module):
    def __init__(self, observed=2, extra=14, width=96):
        super().__init__()
        self.field = Field(observed + extra, width)
        self.lift = nn.Linear(observed, observed + extra)
        self.read = nn.Linear(observed + extra, observed)

    def forward(self, y0, times):
        z = Adjoint.apply(self.field, self.lift(y0), times, *self.field.parameters())  # <<
        return self.read(z)


def lotka_volterra(t, y):
    x, p = y.unbind(-1)
    return torch.stack([1.1 * x - 0.4 * x * p, 0.1 * x * p - 0.4 * p], dim=-1)


def simulate(count, points, dt):
    y = torch.rand(count, 2) * torch.tensor([8.0, 4.0]) + torch.tensor([2.0, 1.0])
    times = torch.arange(points) * dt
    out = [y]
    for _ in range(points - 1):
        for _ in range(10):
            y = rk4_step(lotka_volterra, 0.0, dt / 10, y)
        out.append(y)
    clean = torch.stack(out)
    return times, (clean / 5.0 + 0.02 * torch.randn_like(clean))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=24)
    p.add_argument("--batch", type=int, default=256)
    opt = p.parse_args()
    torch.manual_seed(21)
    times, series = simulate(15360, 9, 0.25)
    model = AugmentedODE()
    adam = torch.optim.Adam(model.parameters(), lr=3e-3)
    decay = torch.optim.lr_scheduler.ExponentialLR(adam, 0.95)
    for epoch in range(opt.epochs):
        t = time.perf_counter()
        seen = []
        for idx in torch.randperm(series.shape[1]).split(opt.batch):
            batch = series[:, idx]
            loss = (model(batch[0], times) - batch).square().mean()
            adam.zero_grad()
            loss.backward()  # <<
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            adam.step()
            seen.append(loss.detach())
        decay.step()
        print(f"{epoch:3d} mse {torch.stack(seen).mean().item():.5f} {time.perf_counter() - t:.2f}s")


if __name__ == "__main__":
    main()
