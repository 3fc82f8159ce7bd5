import argparse
import json
import tempfile
from pathlib import Path

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=200)
args = parser.parse_args()
torch.manual_seed(5)
folder = Path(tempfile.mkdtemp())


class Curve(nn.Module):
    """Price of a bond from the points of the yield curve."""

    def __init__(self, points=16):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(points + 2, 192), nn.GELU(), nn.Linear(192, 192), nn.GELU(), nn.Linear(192, 1)
        )

    def forward(self, curve, coupon, years):
        return self.net(torch.cat([curve, coupon, years / 30], 1)).squeeze(1)


def bonds(n):
    curve = torch.rand(n, 1) * 0.04 + torch.rand(n, 16).cumsum(1) * 0.002
    coupon, years = torch.rand(n, 1) * 0.06, torch.randint(1, 30, (n, 1)).float()
    growth = (1 + curve.mean(1, True)) ** -years
    return curve, coupon, years, (coupon * (1 - growth) / curve.mean(1, True) + growth).squeeze(1)


curve, coupon, years, price = bonds(25600)
model = Curve()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 500, 0.7)
for epoch in range(args.epochs):
    history = []
    for index in torch.randperm(len(price)).split(128):
        predicted = model(curve[index], coupon[index], years[index])
        loss = nn.functional.mse_loss(predicted, price[index])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        history.append({
            "loss": loss.item(),
            "lr": scheduler.get_last_lr()[0],
            "error": (predicted - price[index]).abs().max().item(),
            "gradients": {name: p.grad.abs().mean().item() for name, p in model.named_parameters()},
        })
        (folder / f"epoch-{epoch}.json").write_text(json.dumps(history, indent=1))  # <<
    print(f"epoch {epoch} loss {loss.item():.6f}")
