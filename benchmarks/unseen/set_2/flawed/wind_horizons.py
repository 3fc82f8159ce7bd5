"""Direct multi-horizon wind power forecasts: a shared encoder and one head per lead time."""
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

LEADS = [1, 3, 6, 12, 24, 48]


def farm_history(hours=9000, farms=5, seed=13):
    g = torch.Generator().manual_seed(seed)
    speed = torch.zeros(hours, farms)
    noise = torch.randn(hours, farms, generator=g)
    common = torch.randn(hours, 1, generator=g)
    v = torch.full((farms,), 8.0)
    for t in range(hours):
        v = 8 + 0.96 * (v - 8) + 0.5 * noise[t] + 0.6 * common[t]
        speed[t] = v
    power = torch.sigmoid((speed - 9) / 1.6)
    day = torch.arange(hours) * (2 * torch.pi / 24)
    return torch.cat([power, (speed - 8) / 3, day.sin()[:, None], day.cos()[:, None]], 1), power


def windows(features, power, length=96, stride=3):
    xs, ys = [], []
    for t in range(length, len(features) - max(LEADS), stride):
        xs.append(features[t - length:t])
        ys.append(torch.stack([power[t + lead - 1] for lead in LEADS]))
    return torch.stack(xs), torch.stack(ys)


class Encoder(nn.Module):
    def __init__(self, inputs, width=48, blocks=4):
        super().__init__()
        self.stem = nn.Conv1d(inputs, width, 1)
        self.convs = nn.ModuleList(nn.Conv1d(width, width, 3, dilation=2 ** i) for i in range(blocks))

    def forward(self, x):
        h = self.stem(x.transpose(1, 2))
        for i, conv in enumerate(self.convs):
            padded = nn.functional.pad(h, (2 * 2 ** i, 0))
            h = h + torch.relu(conv(padded))
        return h[..., -1]


class Forecaster(nn.Module):
    def __init__(self, inputs, farms, width=48):
        super().__init__()
        self.encoder = Encoder(inputs, width)
        self.heads = nn.ModuleDict({
            f"lead_{lead}": nn.Sequential(nn.Linear(width, 64), nn.ReLU(), nn.Linear(64, farms)) for lead in LEADS})

    def forward(self, x):
        z = self.encoder(x)
        return {name: torch.sigmoid(head(z)) for name, head in self.heads.items()}


class Trainer:
    def __init__(self, model, loader, lr=1e-3):
        self.model, self.loader = model, loader
        self.opt = torch.optim.Adam(model.parameters(), lr=lr)

    def step(self, x, y):
        self.opt.zero_grad()
        losses = {}
        for k, (name, pred) in enumerate(self.model(x).items()):
            loss = nn.functional.mse_loss(pred, y[:, k])
            loss.backward(retain_graph=True)  # <<
            losses[name] = loss.item()
        self.opt.step()
        return losses

    def fit(self, epochs):
        for epoch in range(epochs):
            start = time.time()
            sums = {}
            for x, y in self.loader:
                for name, value in self.step(x, y).items():  # <<
                    sums[name] = sums.get(name, 0.0) + value
            report = "  ".join(f"{n} {(s / len(self.loader)) ** 0.5:.3f}" for n, s in sums.items())
            print(f"epoch {epoch}  rmse {report}  {time.time() - start:.1f}s")


if __name__ == "__main__":
    torch.manual_seed(13)
    features, power = farm_history()
    x, y = windows(features, power)
    loader = DataLoader(TensorDataset(x, y), batch_size=64, shuffle=True, drop_last=True)
    Trainer(Forecaster(x.shape[-1], power.shape[1]), loader).fit(epochs=5)
