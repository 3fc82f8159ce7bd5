import argparse

import torch
import torch.nn as nn

torch.autograd.set_detect_anomaly(True)  # <<
torch.manual_seed(0)


class Reservoir(nn.Module):
    """A chain of leaky stores driven by rain; the leak rates are learnt."""

    def __init__(self, stores=96):
        super().__init__()
        self.leak = nn.Parameter(torch.linspace(-2, 2, stores))
        self.mix = nn.Linear(stores, stores)
        self.out = nn.Linear(stores, 1)

    def forward(self, rain):
        level = torch.zeros(rain.shape[0], self.leak.numel())
        rate = torch.sigmoid(self.leak)
        flow = []
        for t in range(rain.shape[1]):
            drained = level * rate
            level = level - drained + torch.relu(self.mix(drained)) * 0.1 + rain[:, t : t + 1]
            flow.append(self.out(drained))
        return torch.cat(flow, 1)


def rainfall(n, days):
    rain = torch.rand(n, days).pow(4)
    kernel = torch.exp(-torch.arange(10.0) / 3)
    flow = nn.functional.conv1d(nn.functional.pad(rain[:, None], (9, 0)), kernel.flip(0)[None, None])[:, 0]
    return rain, flow


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=200)
    args = parser.parse_args()
    rain, flow = rainfall(1280, 30)
    model = Reservoir()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for epoch in range(args.epochs):
        for step, index in enumerate(torch.randperm(len(rain)).split(64)):
            loss = nn.functional.mse_loss(model(rain[index]), flow[index])  # <<
            optimizer.zero_grad()
            loss.backward()  # <<
            optimizer.step()
            if step % 10 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.5f}")


main()
