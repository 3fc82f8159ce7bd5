"""Bayesian convolutional net (local reparametrisation) on synthetic defect images; predictive mean over a few samples."""
import argparse
import math
import os
import tempfile
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class Variational(nn.Module):
    """Factorised normal over a weight; outputs are sampled, not weights."""

    def __init__(self, shape, prior=0.3):
        super().__init__()
        fan = math.prod(shape[1:])
        self.mu = nn.Parameter(torch.randn(shape) / math.sqrt(fan))
        self.rho = nn.Parameter(torch.full(shape, -4.0))
        self.bias = nn.Parameter(torch.zeros(shape[0]))
        self.prior = prior

    def apply(self, op, x):
        sigma = F.softplus(self.rho)
        mean = op(x, self.mu, self.bias)
        var = op(x.square(), sigma.square(), None)
        return mean + var.clamp_min(1e-8).sqrt() * torch.randn_like(mean)

    def kl(self):
        sigma = F.softplus(self.rho)
        return ((self.prior / sigma).log() + (sigma.square() + self.mu.square()) / (2 * self.prior ** 2) - 0.5).sum()


class BConv(Variational):
    def __init__(self, cin, cout, k=3, stride=1):
        super().__init__((cout, cin, k, k))
        self.k, self.stride = k, stride

    def forward(self, x):
        return self.apply(lambda x, w, b: F.conv2d(x, w, b, self.stride, self.k // 2), x)


class BLinear(Variational):
    def __init__(self, cin, cout):
        super().__init__((cout, cin))

    def forward(self, x):
        return self.apply(F.linear, x)


class Net(nn.Sequential):
    def __init__(self, classes):
        super().__init__(BConv(1, 24), nn.ReLU(), BConv(24, 48, stride=2), nn.ReLU(), BConv(48, 64, stride=2), nn.ReLU(),
                         BConv(64, 64), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), BLinear(256, classes))

    def kl(self):
        return sum(m.kl() for m in self if isinstance(m, Variational))


def plates(n, classes, seed):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(classes, (n,), generator=g)
    grid = torch.linspace(-1, 1, 32)
    cx, cy = torch.rand(2, n, 1, 1, generator=g) - 0.5
    angle = y[:, None, None] * math.pi / classes
    along = (grid - cx).expand(n, 32, 32) * angle.cos() + (grid[:, None] - cy) * angle.sin()
    x = torch.exp(-30 * along.square()) + 0.4 * torch.randn(n, 32, 32, generator=g)
    return x.unsqueeze(1), y


def epoch_of(model, opt, x, y, batch, weight):
    model.train()
    total = 0.0
    for idx in torch.randperm(len(x)).split(batch):
        nll = F.cross_entropy(model(x[idx]), y[idx])
        loss = nll + weight * model.kl()
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        total = total + nll.detach() * len(idx)
    return (total / len(x)).item()


@torch.inference_mode()
def predictive(model, x, y, samples=4):
    model.eval()
    prob = sum(model(x).softmax(1) for _ in range(samples)) / samples
    return (prob.argmax(1) == y).float().mean().item()


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=14)
    args = ap.parse_args()
    torch.manual_seed(17)
    x, y = plates(1600, 8, seed=1)
    vx, vy = plates(64, 8, seed=2)
    model = Net(8)
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    best, folder = 0.0, tempfile.mkdtemp()
    for epoch in range(args.epochs):
        t = time.perf_counter()
        nll = epoch_of(model, opt, x, y, 32, weight=min(1.0, epoch / 5) / len(x) * 0.1)
        acc = predictive(model, vx, vy)
        if acc >= best:
            best = acc
            torch.save(model.state_dict(), os.path.join(folder, "best.pt"))
        print(f"epoch {epoch} nll {nll:.4f} accuracy {acc:.3f} {time.perf_counter() - t:.2f}s")
