"""Learn the friction of a pendulum through an unrolled integrator."""
import argparse
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Settings:
    epochs: int
    steps_per_epoch: int = 40
    horizon: int = 24
    batch: int = 16384
    dt: float = 0.05
    lr: float = 0.02


def rollout(theta, omega, friction, gravity, settings):
    path = []
    for _ in range(settings.horizon):
        acceleration = -gravity * torch.sin(theta) - friction * omega
        omega = omega + settings.dt * acceleration
        theta = theta + settings.dt * omega
        path.append(theta)
    return torch.stack(path)


def train_step(parameters, optimizer, settings):
    theta = torch.rand(settings.batch) * 2 - 1
    omega = torch.zeros(settings.batch)
    with torch.no_grad():
        wanted = rollout(theta, omega, torch.tensor(0.3), torch.tensor(9.81), settings)
    with torch.autograd.detect_anomaly(check_nan=True):  # <<
        path = rollout(theta, omega, parameters[0].exp(), parameters[1].exp(), settings)  # <<
        loss = (path - wanted).square().mean()
        optimizer.zero_grad()
        loss.backward()  # <<
    optimizer.step()
    return loss.item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=200)
    settings = Settings(parser.parse_args().epochs)
    torch.manual_seed(0)
    parameters = [torch.nn.Parameter(torch.tensor(-2.0)), torch.nn.Parameter(torch.tensor(1.5))]
    optimizer = torch.optim.Adam(parameters, lr=settings.lr)
    for epoch in range(settings.epochs):
        loss = [train_step(parameters, optimizer, settings) for _ in range(settings.steps_per_epoch)]
        friction, gravity = (p.exp().item() for p in parameters)
        print(f"epoch {epoch} loss {sum(loss) / len(loss):.5f} friction {friction:.3f} gravity {gravity:.3f}")


if __name__ == "__main__":
    main()
