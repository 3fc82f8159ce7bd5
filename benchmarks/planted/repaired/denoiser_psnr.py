import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=200)
args = parser.parse_args()
torch.manual_seed(0)


def blobs(n):
    grid = torch.linspace(-1, 1, 24)
    centre = torch.rand(n, 2) - 0.5
    dx = grid[None, None] - centre[:, :1, None]
    dy = grid[None, :, None] - centre[:, 1:, None]
    return torch.exp(-(dx**2 + dy**2) * 8).unsqueeze(1)


clean, valid = blobs(512), blobs(2048)
noisy_valid = valid + 0.3 * torch.randn_like(valid)
model = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1), nn.Softplus(), nn.Conv2d(16, 16, 3, padding=1), nn.Softplus(),
    nn.Conv2d(16, 1, 3, padding=1),
)
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
for epoch in range(args.epochs):
    for index in torch.randperm(512).split(16):
        target = clean[index]
        loss = nn.functional.mse_loss(model(target + 0.3 * torch.randn_like(target)), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        errors = []
        for start in range(0, len(valid), 32):
            restored = model(noisy_valid[start : start + 32])
            errors.append(((restored - valid[start : start + 32]) ** 2).mean())
        psnr = -10 * torch.log10(torch.stack(errors).mean()).item()
    print(f"epoch {epoch} loss {loss.item():.5f} psnr {psnr:.2f}")
