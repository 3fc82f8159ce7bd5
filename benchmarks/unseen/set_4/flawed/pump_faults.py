"""
Vibration based pump fault classifier.

I'm using the row-wise normalised update from the old group report (each neuron gets a step of
the same relative size), because Adam overfits on this data set within a few epochs.
"""
import math

import numpy as np
import torch
import torch.nn as nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader, TensorDataset


class NeuronwiseSGD(Optimizer):
    """
    step of neuron i:  lr * |w_i| * m_i / |m_i|    (m = momentum buffer, i = output neuron)
    1-d parameters (biases, norms) get plain SGD with momentum.
    """

    def __init__(self, params, lr=0.01, momentum=0.9, eps=1e-8):
        super().__init__(params, dict(lr=lr, momentum=momentum, eps=eps))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if "buf" not in state:
                    state["buf"] = torch.zeros_like(p)
                buf = state["buf"]
                buf.mul_(group["momentum"]).add_(p.grad)
                if p.dim() == 1:
                    p.sub_(group["lr"] * buf)
                    continue
                for i in range(p.shape[0]):  # <<
                    w_norm = p[i].norm()  # <<
                    m_norm = buf[i].norm()  # <<
                    p[i] -= group["lr"] * (w_norm + 0.01) * buf[i] / (m_norm + group["eps"])  # <<


def vibration_data(n, seed):
    rng = np.random.default_rng(seed)
    t = np.arange(512) / 2048
    y = rng.integers(0, 5, n)
    base = rng.uniform(24, 26, n)
    sig = np.sin(2 * math.pi * base[:, None] * t)
    for k, harmonic in enumerate((1.5, 2.0, 3.1, 5.4), start=1):
        amp = np.where(y == k, rng.uniform(0.2, 0.6, n), 0.03)
        sig += amp[:, None] * np.sin(2 * math.pi * (base * harmonic)[:, None] * t + rng.uniform(0, 6, (n, 1)))
    sig += 0.5 * rng.normal(size=sig.shape)
    spectrum = np.log1p(np.abs(np.fft.rfft(sig))[:, :128])
    return torch.tensor(spectrum, dtype=torch.float32), torch.tensor(y)


class PumpNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(128, 256), nn.BatchNorm1d(256), nn.ReLU(),
            nn.Linear(256, 256), nn.BatchNorm1d(256), nn.ReLU(),
            nn.Linear(256, 64), nn.ReLU(),
            nn.Linear(64, 5),
        )

    def forward(self, x):
        return self.net(x)


if __name__ == "__main__":
    torch.manual_seed(90)
    x, y = vibration_data(5000, seed=90)
    xt, yt = vibration_data(800, seed=91)
    loader = DataLoader(TensorDataset(x, y), batch_size=128, shuffle=True, drop_last=True)
    model = PumpNet()
    optimizer = NeuronwiseSGD(model.parameters(), lr=0.005)
    loss_fn = nn.CrossEntropyLoss(label_smoothing=0.05)

    for epoch in range(1, 21):
        model.train()
        loss_sum = 0
        for xb, yb in loader:
            optimizer.zero_grad()
            loss = loss_fn(model(xb), yb)
            loss.backward()
            optimizer.step()  # <<
            loss_sum += loss.item()
        model.eval()
        with torch.no_grad():
            acc = (model(xt).argmax(1) == yt).float().mean()
        print(f"Epoch {epoch}\tloss {loss_sum / len(loader):.4f}\ttest acc {acc:.4f}")
