"""Land cover from multispectral tiles."""
import argparse
import os
import tempfile

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader

from scenes import BANDS, Scenes


class Backbone(nn.Module):
    def __init__(self, classes=6):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(len(BANDS), 24, 3, 2, 1), nn.ReLU(), nn.Conv2d(24, 32, 3, 2, 1), nn.ReLU())
        self.neck = nn.Linear(32 * 8 * 8, 2048)
        self.head = nn.Linear(2048, classes)

    def forward(self, x):
        return self.head(torch.relu(self.neck(self.stem(x).flatten(1))))


def save(path, model, optimizer, epoch, step):
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch, "step": step}
    torch.save(state, path + ".tmp")
    os.replace(path + ".tmp", path)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=16)
    args = parser.parse_args()
    np.random.seed(1)
    torch.manual_seed(1)
    path = os.path.join(tempfile.mkdtemp(), "last.pt")
    loader = DataLoader(Scenes(512), args.batch_size, shuffle=True)
    model = Backbone()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.05)
    for epoch in range(args.epochs):
        for step, (x, y) in enumerate(loader):
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
        save(path, model, optimizer, epoch, step)
        print(f"epoch {epoch} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
