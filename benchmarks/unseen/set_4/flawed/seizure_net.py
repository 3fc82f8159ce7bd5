"""Seizure detection from 18-channel EEG windows. 1D CNN, with a little monitor for dead / saturated layers."""
import math

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

N_CH, LEN = 18, 256


class ActivationMonitor:
    """Keeps the 5 / 50 / 95 % quantiles of every activation layer, reported after each epoch."""

    def __init__(self, model):
        self.q = torch.tensor([0.05, 0.5, 0.95])
        self.stats = {}
        for name, module in model.named_modules():
            if isinstance(module, nn.ELU):
                module.register_forward_hook(self.make_hook(name))

    def make_hook(self, name):
        def hook(module, inputs, output):
            flat = output.detach().flatten()
            self.stats[name] = torch.quantile(flat, self.q)  # <<
        return hook

    def report(self):
        for name, (lo, med, hi) in ((k, v.tolist()) for k, v in self.stats.items()):
            print(f"      {name:<8s} 5% {lo:+.3f}  50% {med:+.3f}  95% {hi:+.3f}")


def eeg_windows(n, gen):
    t = torch.arange(LEN) / 128
    y = (torch.rand(n, generator=gen) < 0.4).float()
    x = torch.randn(n, N_CH, LEN, generator=gen)
    freq = 3 + 2 * torch.rand(n, 1, 1, generator=gen)
    gain = 0.6 * torch.rand(n, N_CH, 1, generator=gen)
    spikes = gain * torch.sin(2 * math.pi * freq * t).sign()
    return x + y[:, None, None] * spikes, y


class SeizureNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1 = nn.Conv1d(N_CH, 24, 9, stride=2, padding=4)
        self.a1 = nn.ELU()
        self.c2 = nn.Conv1d(24, 32, 7, stride=2, padding=3)
        self.a2 = nn.ELU()
        self.c3 = nn.Conv1d(32, 32, 5, stride=2, padding=2)
        self.a3 = nn.ELU()
        self.drop = nn.Dropout(0.2)
        self.fc = nn.Linear(32, 1)

    def forward(self, x):
        x = self.a1(self.c1(x))
        x = self.a2(self.c2(x))
        x = self.a3(self.c3(x))
        return self.fc(self.drop(x.mean(-1))).squeeze(-1)


def main(epochs=10, batch_size=48):
    torch.manual_seed(33)
    gen = torch.Generator().manual_seed(33)
    x, y = eeg_windows(2600, gen)
    xv, yv = eeg_windows(300, gen)
    loader = DataLoader(TensorDataset(x, y), batch_size=batch_size, shuffle=True, drop_last=True)
    model = SeizureNet()
    monitor = ActivationMonitor(model)
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    bce = nn.BCEWithLogitsLoss()
    for epoch in range(epochs):
        model.train()
        running = 0.0
        for step, (xb, yb) in enumerate(loader):
            opt.zero_grad()
            loss = bce(model(xb), yb)
            loss.backward()
            opt.step()
            running += loss.item()
        print(f"epoch {epoch}: loss {running / len(loader):.4f}")
        monitor.report()
    model.eval()
    with torch.no_grad():
        p = torch.sigmoid(model(xv))
    sens = ((p > 0.5) & (yv == 1)).sum().item() / yv.sum().item()
    spec = ((p <= 0.5) & (yv == 0)).sum().item() / (yv == 0).sum().item()
    print(f"sensitivity {sens:.3f}  specificity {spec:.3f}")


if __name__ == "__main__":
    main()
