"""Bleached corals and healthy ones, told apart on small patches of photos of a reef."""
import argparse
import tempfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image

try:
    import torchvision  # noqa: F401
except (ImportError, RuntimeError):  # a CPU build of torch has not the operations that torchvision's build expects
    library = torch.library.Library("torchvision", "DEF")
    library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

from torch import nn
from torch.utils.data import DataLoader
from torchvision import datasets, transforms

KINDS = {"algae": (70, 120, 60), "bleached": (190, 180, 165), "healthy": (150, 90, 110)}


def take_photos(folder, each, side=256):
    rng = np.random.default_rng(3)
    for kind, color in KINDS.items():
        (folder / kind).mkdir()
        for number in range(each):
            coarse = np.clip(rng.normal(color, 45, (24, 24, 3)), 0, 255).astype(np.uint8)
            photo = Image.fromarray(coarse).resize((side, side), Image.BICUBIC)
            photo.save(folder / kind / f"{number:04}.jpg", quality=85)


class Patches(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 16, 3, stride=2), nn.BatchNorm2d(16), nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2), nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        )
        self.head = nn.Linear(32, len(KINDS))

    def forward(self, x):
        return self.head(self.body(x).flatten(1))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(3)
    folder = Path(tempfile.mkdtemp())
    take_photos(folder, 100)
    transform = transforms.Compose([
        transforms.RandomCrop(64),
        transforms.ColorJitter(0.3, 0.3, 0.3, 0.05),
        transforms.RandomHorizontalFlip(),
        transforms.ToTensor(),
        transforms.Normalize([0.5] * 3, [0.25] * 3),
    ])
    loader = DataLoader(datasets.ImageFolder(folder, transform), batch_size=20, shuffle=True)
    net = Patches()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
    for epoch in range(args.epochs):
        hits = 0
        for photos, kinds in loader:
            scores = net(photos)
            loss = nn.functional.cross_entropy(scores, kinds)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            hits += (scores.argmax(1) == kinds).sum().item()
        print(f"epoch {epoch}: loss {loss.item():.3f}, right {hits / len(loader.dataset):.1%}")


if __name__ == "__main__":
    main()
