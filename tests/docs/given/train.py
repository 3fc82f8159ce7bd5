"""Train a small network on images that are prepared anew each time they are asked for."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    def __init__(self, number=512):
        drawn = torch.Generator().manual_seed(0)
        self.images = torch.randint(0, 256, (number, 3, 24, 24), generator=drawn, dtype=torch.uint8)
        self.labels = torch.randint(0, 10, (number,), generator=drawn)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        image = self.images[index].float() / 255
        for _ in range(3):
            image = (image - image.mean()) / image.std()
        return image, self.labels[index]


def train(epochs=3):
    torch.manual_seed(0)
    loader = DataLoader(Images(), batch_size=32, shuffle=True)
    model = nn.Sequential(nn.Flatten(), nn.Linear(1728, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(epochs):
        for images, labels in loader:
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.4f}")
    torch.save(model.state_dict(), "model.pt")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=30)
    train(parser.parse_args().epochs)
