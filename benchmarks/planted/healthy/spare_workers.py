import argparse

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


class Spectra(Dataset):
    def __init__(self, n, bins=320):
        self.material = torch.randint(0, 12, (n,))
        place = torch.linspace(0, 1, bins)
        peak = (self.material + 1).view(-1, 1) / 14
        self.counts = (torch.exp(-((place - peak) ** 2) / 2e-3) + 0.2 * torch.rand(n, bins)).float()

    def __len__(self):
        return len(self.counts)

    def __getitem__(self, i):
        return self.counts[i].unsqueeze(0), self.material[i]


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList([nn.Conv1d(1, 64, 9), nn.Conv1d(64, 96, 9, 2), nn.Conv1d(96, 128, 9, 2)])
        self.out = nn.Linear(128, 12)

    def forward(self, x):
        for conv in self.convs:
            x = torch.relu(conv(x))
        return self.out(x.amax(2))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(0)
    loader = DataLoader(
        Spectra(1600), batch_size=16, shuffle=True, num_workers=args.workers, persistent_workers=args.workers > 0
    )
    model = Classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, nesterov=True)
    for epoch in range(args.epochs):
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.4f}")
