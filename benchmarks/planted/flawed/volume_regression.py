import argparse

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset


class Light(nn.Module):
    """A strided stem that throws most of the volume away, then a small head."""

    def __init__(self):
        super().__init__()
        self.pool = nn.Sequential(nn.Conv3d(4, 16, 4, stride=4), nn.ReLU())
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(16 * 12**3, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, x):
        return self.head(self.pool(x)).squeeze(1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=200)
    args = parser.parse_args()
    torch.manual_seed(0)
    volumes = torch.randn(24, 4, 48, 48, 48)
    index = torch.randint(0, 24, (160,))
    ages = 0.5 + volumes.mean((1, 2, 3, 4))[index] * 10

    class Scans(TensorDataset):
        def __getitem__(self, i):
            return volumes[index[i]], ages[i]

    loader = DataLoader(Scans(index), batch_size=8, shuffle=True, num_workers=2, persistent_workers=True)  # <<
    model = Light()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for epoch in range(args.epochs):
        running = 0.0
        for x, y in loader:  # <<
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            running += loss.item()
        print(f"epoch {epoch} loss {running / len(loader):.5f}")


if __name__ == "__main__":
    main()
