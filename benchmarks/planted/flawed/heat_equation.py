import argparse

import numpy as np
import torch
import torch.nn as nn


def simulate(n, points=256, seed=0):
    """Temperature on a rod before and after a fixed time."""
    rng = np.random.default_rng(seed)
    x = np.linspace(0, 1, points)
    modes = np.arange(1, 9)
    amplitude = rng.normal(size=(n, 8)) / modes
    shape = np.sin(np.pi * modes[:, None] * x)
    before = amplitude @ shape
    after = (amplitude * np.exp(-0.02 * modes**2)) @ shape
    return before, after


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--batch", type=int, default=256)
    args = parser.parse_args()
    torch.manual_seed(0)
    before, after = simulate(8192)
    before, after = torch.from_numpy(before), torch.from_numpy(after)  # <<
    model = nn.Sequential(nn.Linear(256, 640), nn.ReLU(), nn.Linear(640, 640), nn.ReLU(), nn.Linear(640, 256))
    model = model.double()  # <<
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    for epoch in range(args.epochs):
        order = torch.randperm(len(before))
        for step, index in enumerate(order.split(args.batch)):
            loss = nn.functional.mse_loss(model(before[index]), after[index])  # <<
            optimizer.zero_grad()
            loss.backward()  # <<
            optimizer.step()
            if step % 10 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
