"""MAML (second order) on few-shot regression of sinusoids; all tasks of a meta-batch go through at once."""
import math
import time

import torch

WIDTH = 64
SHOTS, QUERIES = 10, 20
TASKS = 25
INNER_STEPS, INNER_LR = 3, 0.02


def init_params(seed):
    g = torch.Generator().manual_seed(seed)
    sizes = [1, WIDTH, WIDTH, 1]
    params = []
    for i, o in zip(sizes, sizes[1:]):
        params.append((torch.randn(i, o, generator=g) / math.sqrt(i)).requires_grad_())
        params.append(torch.zeros(1, o).requires_grad_())
    return params


def net(params, x):
    """params carry a leading task dimension, x is tasks x samples x 1."""
    for k in range(0, len(params), 2):
        x = torch.baddbmm(params[k + 1], x, params[k])
        if k + 2 < len(params):
            x = torch.tanh(x)
    return x


def sample_tasks(n):
    amplitude = 0.5 + 4.5 * torch.rand(n, 1, 1)
    phase = math.pi * torch.rand(n, 1, 1)
    x = 10 * torch.rand(n, SHOTS + QUERIES, 1) - 5
    y = amplitude * torch.sin(x + phase)
    return x[:, :SHOTS], y[:, :SHOTS], x[:, SHOTS:], y[:, SHOTS:]


def adapt(params, x, y, steps, create_graph):
    fast = [p.expand(len(x), *p.shape) for p in params]
    if not create_graph:
        fast = [p.detach().clone().requires_grad_() for p in fast]
    for _ in range(steps):
        loss = (net(fast, x) - y).square().mean(dim=(1, 2)).sum()
        grads = torch.autograd.grad(loss, fast, create_graph=create_graph)
        fast = [p - INNER_LR * g for p, g in zip(fast, grads)]
    return fast


def evaluate(params, tasks):
    xs, ys, xq, yq = tasks
    curve = []
    for steps in (0, 1, INNER_STEPS):
        fast = adapt(params, xs, ys, steps, create_graph=False)
        with torch.no_grad():
            curve.append((net(fast, xq) - yq).square().mean().item())
    return curve


def main(iterations=3000):
    torch.manual_seed(2)
    params = init_params(2)
    opt = torch.optim.Adam(params, lr=1e-3)
    held_out = sample_tasks(200)
    t0, running = time.time(), 0.0
    for it in range(1, iterations + 1):
        xs, ys, xq, yq = sample_tasks(TASKS)
        fast = adapt(params, xs, ys, INNER_STEPS, create_graph=True)
        loss = (net(fast, xq) - yq).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        running += loss.item()
        if it % 250 == 0:
            before, one, full = evaluate(params, held_out)
            print(f"{it:5d}  meta loss {running / 250:.3f}  held out: {before:.2f} -> {one:.2f} -> {full:.2f}"
                  f"  ({time.time() - t0:.1f} s)")
            running = 0.0


if __name__ == "__main__":
    main()
