import argparse
import io

import numpy as np
import torch
import torch.nn as nn
from PIL import Image
from torch.utils.data import DataLoader, Dataset

MEAN = np.array([0.485, 0.456, 0.406], dtype=np.float32)
STD = np.array([0.229, 0.224, 0.225], dtype=np.float32)


def encode_images(n):
    rng = np.random.default_rng(0)
    blobs, labels = [], rng.integers(0, 3, n)
    for label in labels:
        coarse = rng.integers(0, 160, (8, 8, 3), dtype=np.uint8)
        coarse[..., label] += 60
        buffer = io.BytesIO()
        Image.fromarray(coarse).resize((128, 128), Image.NEAREST).save(buffer, "PNG", compress_level=1)
        blobs.append(buffer.getvalue())
    return blobs, labels


class Thumbnails(Dataset):
    def __init__(self, blobs, labels, side=40):
        self.blobs, self.labels, self.side = blobs, labels, side

    def __len__(self):
        return len(self.blobs)

    def load(self, i):
        image = Image.open(io.BytesIO(self.blobs[i])).convert("RGB")  # <<
        image = image.resize((self.side, self.side), Image.LANCZOS)  # <<
        array = (np.asarray(image, dtype=np.float32) / 255 - MEAN) / STD  # <<
        return torch.from_numpy(array.transpose(2, 0, 1).copy())

    def __getitem__(self, i):
        return self.load(i), int(self.labels[i])  # <<


class ResBlock(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.conv1 = nn.Conv2d(c, c, 3, padding=1)
        self.conv2 = nn.Conv2d(c, c, 3, padding=1)

    def forward(self, x):
        return torch.relu(x + self.conv2(torch.relu(self.conv1(x))))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=200)
    args = parser.parse_args()
    torch.manual_seed(0)
    loader = DataLoader(Thumbnails(*encode_images(512)), batch_size=16, shuffle=True)  # <<
    net = nn.Sequential(
        nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), ResBlock(16), nn.MaxPool2d(2), ResBlock(16),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 3),
    )
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(args.epochs):
        loss_sum = 0
        for x, y in loader:  # <<
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(x), y)
            loss.backward()
            optimizer.step()
            loss_sum += float(loss)
        print(f"Epoch [{epoch}] loss: {loss_sum / len(loader):.4f}")


if __name__ == "__main__":
    main()
