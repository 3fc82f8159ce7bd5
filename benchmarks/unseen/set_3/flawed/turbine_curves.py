"""Power forecast for a fleet of wind turbines.

A shared recurrent network reads the wind history of the park; every turbine corrects the shared curve
with its own few coefficients (mixed-effects style).
"""
import time

import numpy as np
import torch
import torch.nn as nn

TURBINES = 500
COEFFS = 6
HISTORY = 24
HOURS = 6000


def simulate(seed=9):
    rng = np.random.default_rng(seed)
    wind = np.zeros((HOURS, 3), dtype=np.float32)
    for t in range(1, HOURS):
        wind[t] = 0.95 * wind[t - 1] + rng.normal(0, 0.3, 3)
    coeff = rng.normal(0, 0.4, (TURBINES, COEFFS)).astype(np.float32)
    basis = np.stack([wind[:, 0], wind[:, 1], wind[:, 2], wind[:, 0] ** 2, wind[:, 0] * wind[:, 1], np.tanh(wind[:, 2])], 1)
    power = basis @ coeff.T + rng.normal(0, 0.1, (HOURS, TURBINES))
    return torch.from_numpy(wind), torch.from_numpy(power.astype(np.float32))


class FleetModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(3, 48, batch_first=True)
        self.shared = nn.Linear(48, COEFFS)
        self.turbines = nn.ParameterList(  # <<
            nn.Parameter(torch.zeros(COEFFS + 1)) for _ in range(TURBINES))  # <<

    def forward(self, history):
        h, _ = self.gru(history)
        basis = self.shared(h[:, -1])
        basis = torch.cat([basis, torch.ones(len(basis), 1)], 1)
        coeff = torch.stack(list(self.turbines))  # <<
        return basis @ (coeff + 1.0).T


def windows(wind, power, idx):
    offsets = torch.arange(-HISTORY + 1, 1)
    return wind[idx[:, None] + offsets], power[idx]


def main():
    torch.manual_seed(9)
    wind, power = simulate()
    cut = int(HOURS * 0.85)
    train_idx, test_idx = torch.arange(HISTORY, cut), torch.arange(cut, HOURS)
    model = FleetModel()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    for epoch in range(10):
        model.train()
        start, sq = time.time(), 0.0
        batches = train_idx[torch.randperm(len(train_idx))].split(64)
        for i, idx in enumerate(batches):
            x, y = windows(wind, power, idx)
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()  # <<
            sq += loss.item()
            if i % 40 == 0:
                print(f"  {i:3d} mse {loss.item():.4f}")
        scheduler.step()
        model.eval()
        with torch.no_grad():
            x, y = windows(wind, power, test_idx)
            test = nn.functional.mse_loss(model(x), y).item()
        print(f"epoch {epoch}: train {sq / len(batches):.4f} test {test:.4f} [{time.time() - start:.1f}s]")


if __name__ == "__main__":
    main()
