import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class CloudNet(nn.Module):
    def __init__(self, classes=7):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 24, 3, 2), nn.ReLU(), nn.Conv2d(24, 48, 3), nn.ReLU(), nn.Conv2d(48, 48, 3), nn.ReLU(),
        )
        self.classify = nn.Linear(48, classes)

    def forward(self, x):
        return self.classify(self.features(x).mean((2, 3)))


def skies(n):
    kind = torch.randint(0, 7, (n,))
    rough = torch.randn(n, 1, 24, 24)
    smooth = nn.functional.avg_pool2d(rough, 3, 1, 1)
    return TensorDataset(torch.lerp(rough, 2 * smooth, kind.view(-1, 1, 1, 1) / 6), kind)


def train_epoch(model, loader, optimizer):
    losses, hits = [], 0
    for sky, kind in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(sky), kind)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        hits += (model(sky).argmax(1) == kind).sum().item()  # <<
    return sum(losses) / len(losses), hits / len(loader.dataset)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=200)
    args = parser.parse_args()
    torch.manual_seed(16)
    loader = DataLoader(skies(1280), batch_size=32, shuffle=True)
    model = CloudNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(args.epochs):
        loss, accuracy = train_epoch(model, loader, optimizer)
        print(f"epoch {epoch} loss {loss:.4f} accuracy {accuracy:.3f}")
