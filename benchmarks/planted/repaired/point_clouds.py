import argparse

import torch
from torch import nn


class PointNet(nn.Module):
    """Shared layers over points, then a maximum over the cloud."""

    def __init__(self, classes):
        super().__init__()
        self.local = nn.Sequential(nn.Linear(3, 48), nn.ReLU(), nn.Linear(48, 64), nn.ReLU())
        self.head = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, classes))

    def forward(self, clouds):
        centred = clouds - clouds.mean(1, keepdim=True)
        return self.head(self.local(centred).amax(1))


def sample_clouds(n, points=192):
    kind = torch.randint(0, 4, (n,))
    cloud = torch.randn(n, points, 3)
    sphere = cloud / cloud.norm(dim=-1, keepdim=True)
    cube = cloud.clamp(-1, 1)
    disc = cloud * torch.tensor([1.0, 1.0, 0.05])
    line = cloud * torch.tensor([1.0, 0.05, 0.05])
    shapes = torch.stack([sphere, cube, disc, line], 1)
    return shapes[torch.arange(n), kind], kind


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--accumulate", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(0)
    clouds, kinds = sample_clouds(960)
    net = PointNet(4)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    for epoch in range(args.epochs):
        order = torch.randperm(len(clouds)).split(24)
        for k, index in enumerate(order):
            loss = nn.functional.cross_entropy(net(clouds[index]), kinds[index])
            (loss / args.accumulate).backward()
            if (k + 1) % args.accumulate == 0:
                optimizer.step()
                optimizer.zero_grad()
            if k % 16 == 0:
                print(f"epoch {epoch} batch {k} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
