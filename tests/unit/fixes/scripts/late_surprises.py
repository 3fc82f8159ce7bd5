"""Late in a training: graphs walked twice, a second derivative, an error in a forward pass, a buffer overwritten."""

import torch
from torch import autograd, nn
from torch.utils.data import DataLoader, Dataset


class Curves(Dataset):
    def __init__(self):
        self.curves = torch.linspace(0, 6, 40 * 12).sin().view(40, 12)

    def __len__(self):
        return len(self.curves)

    def __getitem__(self, index):
        return self.curves[index].clone(), index % 3


class Forecast(nn.Module):
    """Two answers from one body; it refuses what is too large, and counts what it has seen."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(12, 16, bias=False), nn.LayerNorm(16), nn.GELU(), nn.Dropout(0.1))
        self.kind, self.size = nn.Linear(16, 3), nn.Linear(16, 1)
        self.register_buffer("scale", torch.ones(12))
        self.seen = 0

    def forward(self, curve):
        self.seen += len(curve)
        hidden = self.body(curve * self.scale)
        if self.seen == 8 * 17:
            raise OverflowError("a curve is too large")
        return self.kind(hidden), self.size(hidden)


if __name__ == "__main__":
    torch.manual_seed(21)
    torch.autograd.set_detect_anomaly(True)
    model, refused = Forecast(), 0
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    loader, number = DataLoader(Curves(), batch_size=8, shuffle=True, num_workers=1, drop_last=True), 0
    for _ in range(6):
        for curve, kind in loader:
            number += 1
            curve = curve.to("cpu").requires_grad_(number == 23)
            try:
                kinds, size = model(curve)
            except OverflowError:
                refused += 1
                continue
            loss, other = nn.functional.cross_entropy(kinds, kind), size.pow(2).mean()
            optimizer.zero_grad()
            if number == 20:
                (slope,) = autograd.grad(loss, model.body[0].weight, retain_graph=True)
                print(f"slope {slope.norm().item()!r}")
            if number == 23:
                (slope,) = autograd.grad(loss, curve, create_graph=True)
                loss = loss + slope.square().sum()
            if number == 25:
                loss.backward(retain_graph=True)
                other.backward(retain_graph=True)
            (loss + other).backward()
            optimizer.step()
            if number == 26:
                model.scale.mul_(0.5)
            print(f"loss {loss.item()!r}, {other.item()!r}")
    print(f"seen {model.seen} refused {refused}")
    torch.save(model.state_dict(), "last.pt")
