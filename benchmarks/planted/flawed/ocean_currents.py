import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)  # <<


class Currents(nn.Module):
    """The two parts of the current at the surface, from the height of the sea and its temperature."""

    def __init__(self, width=32):
        super().__init__()
        self.enter = nn.Conv2d(2, width, 5, padding=2)
        self.middle = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(3))
        self.leave = nn.Conv2d(width, 2, 3, padding=1)

    def forward(self, sea):
        h = torch.relu(self.enter(sea))
        for layer in self.middle:
            h = h + torch.relu(layer(h))
        return self.leave(h)


def days(n, side=64):
    waves = torch.fft.fftfreq(side)
    size = (waves[:, None] ** 2 + waves[None, :] ** 2).sqrt()
    noise = torch.fft.fft2(torch.randn(n, 2, side, side))
    sea = torch.fft.ifft2(noise * (size < 0.12)).real
    sea = sea / sea.std()
    height = sea[:, 0]
    east = -(height.roll(-1, 1) - height.roll(1, 1)) / 2
    north = (height.roll(-1, 2) - height.roll(1, 2)) / 2
    return sea, torch.stack([east, north], 1) + 0.05 * torch.randn(n, 2, side, side)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--batch-size", type=int, default=8)
    args = parser.parse_args()
    torch.manual_seed(15)
    loader = DataLoader(TensorDataset(*days(160)), args.batch_size, shuffle=True, num_workers=0)
    net = Currents()
    optimizer = torch.optim.AdamW(net.parameters(), lr=2e-3, fused=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs)
    for epoch in range(args.epochs):
        total = 0.0
        for sea, current in loader:
            loss = nn.functional.mse_loss(net(sea), current)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        schedule.step()
        print(f"epoch {epoch}: mse {total / len(loader):.5f}")


if __name__ == "__main__":
    main()
