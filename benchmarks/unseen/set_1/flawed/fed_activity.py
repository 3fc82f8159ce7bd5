"""Federated averaging on synthetic accelerometer windows; clients differ in placement and label mix."""
import argparse
import copy
import pickle
import time
import zlib
from dataclasses import dataclass, field

import torch
from torch import nn
import torch.nn.functional as F


@dataclass
class Settings:
    clients: int = 6
    local_steps: int = 12
    batch: int = 64
    lr: float = 0.05
    classes: int = 8
    window: int = 96
    samples: int = 600


class ActivityNet(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv1d(6, 48, 7, padding=3), nn.ReLU(), nn.MaxPool1d(2),
            nn.Conv1d(48, 64, 5, padding=2), nn.ReLU(), nn.MaxPool1d(2),
            nn.Conv1d(64, 64, 5, padding=2), nn.ReLU(),
        )
        self.fc = nn.Sequential(nn.Linear(64 * 24, 96), nn.ReLU(), nn.Linear(96, classes))

    def forward(self, x):
        return self.fc(self.conv(x).flatten(1))


@dataclass
class TrafficMeter:
    """Keeps the size of what each client would upload this round, as compressed fp16 differences."""
    level: int = 6
    sizes: dict = field(default_factory=dict)

    def measure(self, client, model, reference):
        delta = {k: (v - reference[k]).half().numpy() for k, v in model.state_dict().items()}
        payload = pickle.dumps(delta, protocol=pickle.HIGHEST_PROTOCOL)
        self.sizes[client] = len(zlib.compress(payload, self.level))  # <<

    def flush(self):
        total = sum(self.sizes.values())
        self.sizes.clear()
        return total


class Client:
    def __init__(self, ident, cfg, seed):
        self.ident, self.cfg = ident, cfg
        self.gen = torch.Generator().manual_seed(seed)
        self.x, self.y = self.make_windows()

    def make_windows(self):
        cfg, g = self.cfg, self.gen
        mix = torch.distributions.Dirichlet(torch.full((cfg.classes,), 0.7)).sample()
        y = torch.multinomial(mix, cfg.samples, replacement=True, generator=g)
        t = torch.arange(cfg.window) / 32.0
        rate = 0.6 + 0.45 * y[:, None, None]
        phase = 6.2832 * torch.rand(cfg.samples, 6, 1, generator=g)
        placement = 0.5 + torch.rand(1, 6, 1, generator=g)
        x = placement * torch.sin(6.2832 * rate * t + phase)
        return x + 0.5 * torch.randn(x.shape, generator=g), y

    def train(self, model, reference, observers):
        opt = torch.optim.SGD(model.parameters(), lr=self.cfg.lr, momentum=0.9)
        total = torch.zeros(())
        for _ in range(self.cfg.local_steps):
            index = torch.randint(self.cfg.samples, (self.cfg.batch,), generator=self.gen)
            loss = F.cross_entropy(model(self.x[index]), self.y[index])
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.detach()
            for observer in observers:
                observer.measure(self.ident, model, reference)  # <<
        return total / self.cfg.local_steps


class Server:
    def __init__(self, cfg):
        self.cfg = cfg
        self.model = ActivityNet(cfg.classes)
        self.clients = [Client(i, cfg, seed=100 + i) for i in range(cfg.clients)]
        self.meter = TrafficMeter()

    def round(self):
        reference = {k: v.clone() for k, v in self.model.state_dict().items()}
        mean = {k: torch.zeros_like(v) for k, v in reference.items()}
        losses = []
        for client in self.clients:
            local = copy.deepcopy(self.model)
            losses.append(client.train(local, reference, [self.meter]))
            for k, v in local.state_dict().items():
                mean[k] += v / len(self.clients)
        self.model.load_state_dict(mean)
        return torch.stack(losses).mean().item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=24, help="communication rounds")
    args = ap.parse_args()
    torch.manual_seed(0)
    server = Server(Settings())
    for epoch in range(args.epochs):
        began = time.perf_counter()
        loss = server.round()
        sent = server.meter.flush() / 1e6
        print(f"round {epoch:2d}  local loss {loss:.4f}  upload {sent:.2f} MB  {time.perf_counter() - began:.2f}s")


if __name__ == "__main__":
    main()
