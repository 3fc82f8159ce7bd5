"""Reptile on families of sinusoids."""
import argparse
import copy
import math
import time

import torch
from torch import nn


class Task:
    def __init__(self, gen):
        self.amp = 0.1 + 4.9 * torch.rand(1, generator=gen).item()
        self.phase = math.pi * torch.rand(1, generator=gen).item()
        self.gen = gen

    def sample(self, n):
        x = torch.rand(n, 1, generator=self.gen) * 10 - 5
        return x, self.amp * torch.sin(x + self.phase)


def make_net(width=512):
    layers = [nn.Linear(1, width), nn.Tanh()]
    for _ in range(2):
        layers += [nn.Linear(width, width), nn.Tanh()]
    return nn.Sequential(*layers, nn.Linear(width, 1))


def adapt(net, x, y, steps, lr):
    inner = torch.optim.SGD(net.parameters(), lr=lr)
    for _ in range(steps):
        loss = nn.functional.mse_loss(net(x), y)
        inner.zero_grad()
        loss.backward()
        inner.step()
    return net


def evaluate(meta, tasks, args):
    errors = []
    for (xs, ys), (xq, yq) in tasks:
        fast = adapt(copy.deepcopy(meta), xs, ys, args.test_steps, args.inner_lr)
        with torch.no_grad():
            errors.append(nn.functional.mse_loss(fast(xq), yq).item())
    return sum(errors) / len(errors)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--iterations", type=int, default=160)
    p.add_argument("--meta-batch", type=int, default=2)
    p.add_argument("--inner-steps", type=int, default=5)
    p.add_argument("--test-steps", type=int, default=10)
    p.add_argument("--inner-lr", type=float, default=0.005)
    p.add_argument("--meta-lr", type=float, default=0.3)
    p.add_argument("--eval-every", type=int, default=10)  # <<
    args = p.parse_args()

    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(1)
    held_out = []
    for _ in range(20):
        task = Task(gen)
        held_out.append((task.sample(100), task.sample(200)))

    meta = make_net()
    started = time.time()
    for it in range(1, args.iterations + 1):
        update = [torch.zeros_like(p) for p in meta.parameters()]
        for _ in range(args.meta_batch):
            x, y = Task(gen).sample(100)
            fast = adapt(copy.deepcopy(meta), x, y, args.inner_steps, args.inner_lr)
            for u, p_fast, p_meta in zip(update, fast.parameters(), meta.parameters()):
                u += p_fast.detach() - p_meta.detach()
        frac = args.meta_lr * (1 - it / args.iterations)
        with torch.no_grad():
            for p_meta, u in zip(meta.parameters(), update):
                p_meta += frac * u / args.meta_batch
        if it % args.eval_every == 0:  # <<
            print(f"iter {it:4d} test mse {evaluate(meta, held_out, args):.3f}  {time.time() - started:.1f}s", flush=True)  # <<


if __name__ == "__main__":
    main()
