"""Normaliser-free residual network with adaptive gradient clipping (Brock et al. 2021)."""
import argparse
import math
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class ScaledStdConv(nn.Conv2d):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.gain = nn.Parameter(torch.ones(self.out_channels, 1, 1, 1))
        self.fan_scale = 1.0 / math.sqrt(self.weight[0].numel())

    def forward(self, x):
        var, mean = torch.var_mean(self.weight, dim=(1, 2, 3), keepdim=True)
        w = (self.weight - mean) * torch.rsqrt(var + 1e-5) * (self.gain * self.fan_scale)
        return self._conv_forward(x, w, self.bias)


class NFBlock(nn.Module):
    def __init__(self, cin, cout, stride, beta, alpha=0.2):
        super().__init__()
        self.beta, self.alpha = beta, alpha
        self.conv1 = ScaledStdConv(cin, cout, 3, stride, 1)
        self.conv2 = ScaledStdConv(cout, cout, 3, 1, 1)
        self.skip_gain = nn.Parameter(torch.zeros(()))
        self.short = ScaledStdConv(cin, cout, 1, stride) if stride > 1 or cin != cout else None

    def forward(self, x):
        y = F.relu(x / self.beta) * 1.7868
        short = x if self.short is None else self.short(y)
        y = self.conv2(F.relu(self.conv1(y)) * 1.7868)
        return short + self.alpha * self.skip_gain * y


class NFNet(nn.Module):
    def __init__(self, classes, widths=(16, 32, 64)):
        super().__init__()
        self.stem = ScaledStdConv(3, widths[0], 3, 1, 1)
        blocks, cin, var = [], widths[0], 1.0
        for i, w in enumerate(widths):
            for j in range(2):
                blocks.append(NFBlock(cin, w, 2 if j == 0 and i > 0 else 1, math.sqrt(var)))
                var = (1.0 if j == 0 else var) + 0.2 ** 2
                cin = w
        self.blocks = nn.Sequential(*blocks)
        self.fc = nn.Linear(cin, classes)

    def forward(self, x):
        return self.fc(F.relu(self.blocks(self.stem(x))).mean((2, 3)))


class AGC:
    """Clips the gradient of every output unit to a share of the norm of the unit's weights."""

    def __init__(self, params, clipping=0.02, eps=1e-3):
        self.params = [p for p in params if p.ndim > 1]
        self.clipping = clipping
        self.eps = eps

    @torch.no_grad()
    def __call__(self):
        for p in self.params:
            if p.grad is not None:
                self.clip(p)  # <<

    def clip(self, p):
        for unit, grad in zip(p, p.grad):  # <<
            limit = unit.norm().clamp(min=self.eps) * self.clipping  # <<
            norm = grad.norm()  # <<
            if norm > limit:  # <<
                grad.mul_(limit / norm)


class ClippedSGD(torch.optim.SGD):
    def __init__(self, model, **kwargs):
        super().__init__(model.parameters(), **kwargs)
        head = {id(p) for p in model.fc.parameters()}
        self.agc = AGC([p for p in model.parameters() if id(p) not in head])

    def step(self, closure=None):
        self.agc()  # <<
        return super().step(closure)


def blobs(n, classes, size=24):
    g = torch.Generator().manual_seed(4)
    y = torch.randint(0, classes, (n,), generator=g)
    means = torch.randn(classes, 3, 6, 6, generator=g)
    x = F.interpolate(means, size=size, mode="nearest")[y]
    return x + 1.5 * torch.randn(x.shape, generator=g), y


def run(epochs, batch=16, steps=60):
    torch.manual_seed(0)
    x, y = blobs(batch * steps, 10)
    net = NFNet(10)
    opt = ClippedSGD(net, lr=0.05, momentum=0.9, weight_decay=2e-5, nesterov=True)
    for epoch in range(epochs):
        begin = time.time()
        order = torch.randperm(len(x))
        total = 0.0
        for s in range(steps):
            idx = order[s * batch:(s + 1) * batch]
            opt.zero_grad()
            loss = F.cross_entropy(net(x[idx]), y[idx])
            loss.backward()
            opt.step()
            total += loss.item()
        print(f"epoch {epoch:2d} | loss {total / steps:.4f} | {time.time() - begin:.2f} s", flush=True)


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=15)
    run(ap.parse_args().epochs)
