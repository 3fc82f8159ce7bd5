import argparse

import torch
import torch.nn as nn
from torch.utils.data import DataLoader

from leaves import LeafDataset
from transforms import Chain, Gamma, RandomFlip, ToFloat


def get_loader(batch_size):
    transform = Chain([Gamma(0.8), RandomFlip(), ToFloat()])
    return DataLoader(LeafDataset(320, transform), batch_size=batch_size, shuffle=True, drop_last=True)


def get_model():
    return nn.Sequential(
        nn.Conv2d(3, 24, 3, stride=2, padding=1), nn.BatchNorm2d(24), nn.ReLU(),
        nn.Conv2d(24, 48, 3, padding=1), nn.BatchNorm2d(48), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(48, 48, 3, padding=1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(192, 5),
    )


def run(epochs):
    torch.manual_seed(11)
    loader = get_loader(16)
    model = get_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=epochs)
    for epoch in range(epochs):
        running = 0.0
        for images, targets in loader:
            loss = nn.functional.cross_entropy(model(images), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            running += loss.item()
        schedule.step()
        print(f"[{epoch}] loss={running / len(loader):.4f} lr={schedule.get_last_lr()[0]:.4f}")


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=200)
    run(p.parse_args().epochs)
