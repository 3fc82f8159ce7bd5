"""Day-ahead load forecasts for many substations with a small patch transformer.

Keeps an average of the weights for validation and writes the best one to disk.
"""
import tempfile
import time
from pathlib import Path

import torch
from torch import nn

HISTORY, AHEAD, PATCH = 168, 24, 12


def loads(stations=60, hours=24 * 7 * 20, seed=41):
    g = torch.Generator().manual_seed(seed)
    t = torch.arange(hours)
    day = torch.rand(stations, 24, generator=g).cumsum(1)
    day = (day - day.mean(1, keepdim=True)) * torch.linspace(-1, 1, 24)
    week = 1 - 0.3 * (t // 24 % 7 >= 5) * torch.rand(stations, 1, generator=g)
    weather = torch.randn(stations, hours // 24, generator=g).repeat_interleave(24, 1)
    y = day[:, t % 24] * week + 0.4 * weather + 0.1 * torch.randn(stations, hours, generator=g)
    return (y - y.mean(1, keepdim=True)) / y.std(1, keepdim=True)


class PatchTransformer(nn.Module):
    def __init__(self, dim=64, heads=4, layers=2):
        super().__init__()
        self.embed = nn.Linear(PATCH, dim)
        self.position = nn.Parameter(0.02 * torch.randn(HISTORY // PATCH, dim))
        layer = nn.TransformerEncoderLayer(dim, heads, 2 * dim, dropout=0.0, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.out = nn.Linear(dim * (HISTORY // PATCH), AHEAD)

    def forward(self, x):
        tokens = self.embed(x.unflatten(1, (-1, PATCH))) + self.position
        return self.out(self.body(tokens).flatten(1))


class WeightAverage:
    def __init__(self, model, decay):
        self.decay = decay
        self.source = list(model.parameters())
        self.values = [p.detach().clone() for p in self.source]

    @torch.no_grad()
    def update(self):
        torch._foreach_lerp_(self.values, self.source, 1 - self.decay)

    def state_dict(self, model):
        return {name: v for (name, _), v in zip(model.named_parameters(), self.values)}


@torch.no_grad()
def validate(model, windows, batch=256):
    total = 0.0
    for w in windows.split(batch):
        total += (model(w[:, :HISTORY]) - w[:, HISTORY:]).abs().sum().item()
    return total / (len(windows) * AHEAD)


def main():
    torch.manual_seed(41)
    y = loads()
    cut = int(y.shape[1] * 0.9)
    # views; only the picked rows are copied
    train = y[:, :cut].unfold(1, HISTORY + AHEAD, 1)
    val = y[:, cut - HISTORY:].unfold(1, HISTORY + AHEAD, 24).reshape(-1, HISTORY + AHEAD)
    model, averaged = PatchTransformer(), PatchTransformer().eval()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
    average = WeightAverage(model, 0.99)
    best = float("inf")
    with tempfile.TemporaryDirectory(prefix="grid_load_") as d:
        for epoch in range(8):
            t0, total = time.time(), 0.0
            for step in range(1, 201):
                s = torch.randint(train.shape[0], (64,))
                h = torch.randint(train.shape[1], (64,))
                w = train[s, h]
                loss = nn.functional.l1_loss(model(w[:, :HISTORY]), w[:, HISTORY:])
                opt.zero_grad()
                loss.backward()
                norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                opt.step()
                average.update()
                total += loss.item()
                if step % 50 == 0:
                    print(f"  {epoch}/{step}  mae {total / step:.4f}  |g| {norm.item():.2f}")
            averaged.load_state_dict(average.state_dict(model))
            mae = validate(averaged, val)
            if mae < best:
                best = mae
                torch.save(averaged.state_dict(), Path(d) / "best.pt")
            print(f"epoch {epoch}  train {total / step:.4f}  val {mae:.4f}  best {best:.4f}  {time.time() - t0:.1f}s")


if __name__ == "__main__":
    main()
