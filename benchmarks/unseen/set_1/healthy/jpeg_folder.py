"""Fine-grained classification from a folder of JPEG files."""
import argparse
import os
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
from PIL import Image
from torch.utils.data import DataLoader, Dataset


class CropFlip:
    """Random crop and mirror on the PIL image, then a normalised tensor."""

    def __init__(self, size):
        self.size = size

    def __call__(self, img):
        x, y, mirror = torch.randint(0, img.width - self.size + 1, (3,)).tolist()
        img = img.crop((x, y, x + self.size, y + self.size))
        if mirror % 2:
            img = img.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        x = torch.from_numpy(np.array(img)).permute(2, 0, 1)
        return (x.float() / 255 - 0.5) / 0.25


def make_folder(root, n, classes):
    rng = np.random.default_rng(0)
    tint = rng.uniform(40, 200, (classes, 3))
    yy, xx = np.mgrid[:96, :96]
    for i in range(n):
        c = i % classes
        wave = np.sin(xx / (3 + c) + rng.uniform(0, 6)) * np.cos(yy / (2 + c % 4)) * 40
        img = np.clip(tint[c] + wave[..., None] + rng.normal(0, 12, (96, 96, 3)), 0, 255).astype(np.uint8)
        os.makedirs(os.path.join(root, str(c)), exist_ok=True)
        Image.fromarray(img).save(os.path.join(root, str(c), f"{i}.jpg"), quality=85)


class JpegFolder(Dataset):
    def __init__(self, root, transform):
        self.files = sorted((os.path.join(root, c, f), int(c)) for c in os.listdir(root) for f in os.listdir(os.path.join(root, c)))
        self.transform = transform

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        path, label = self.files[i]
        with Image.open(path) as img:
            return self.transform(img.convert("RGB")), label


class Bottleneck(nn.Module):
    def __init__(self, cin, mid, cout, stride=1):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(cin, mid, 1, bias=False), nn.BatchNorm2d(mid), nn.ReLU(inplace=True),
            nn.Conv2d(mid, mid, 3, stride, 1, bias=False), nn.BatchNorm2d(mid), nn.ReLU(inplace=True),
            nn.Conv2d(mid, cout, 1, bias=False), nn.BatchNorm2d(cout),
        )
        self.short = nn.Identity() if stride == 1 and cin == cout else nn.Conv2d(cin, cout, 1, stride, bias=False)

    def forward(self, x):
        return torch.relu(self.body(x) + self.short(x))


def build(classes):
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU(inplace=True), nn.MaxPool2d(2),
        Bottleneck(32, 32, 96), Bottleneck(96, 32, 96),
        Bottleneck(96, 48, 160, 2), Bottleneck(160, 48, 160),
        Bottleneck(160, 64, 224, 2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(224, classes),
    )


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=15)
    ap.add_argument("--batch-size", type=int, default=16)
    ap.add_argument("--workers", type=int, default=2)
    args = ap.parse_args()
    torch.manual_seed(0)
    root = tempfile.mkdtemp(prefix="jpegs_")
    make_folder(root, 640, 8)
    loader = DataLoader(JpegFolder(root, CropFlip(80)), args.batch_size, shuffle=True, drop_last=True,
                        num_workers=args.workers, persistent_workers=args.workers > 0, prefetch_factor=4 if args.workers else None)
    model = build(8)
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    loss_fn = nn.CrossEntropyLoss()
    for epoch in range(args.epochs):
        t = time.time()
        model.train()
        for i, (x, y) in enumerate(loader):
            loss = loss_fn(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            if i % 20 == 0:
                print(f"epoch {epoch} step {i}/{len(loader)} loss {loss.item():.4f}", flush=True)
        print(f"epoch {epoch} took {time.time() - t:.2f} s", flush=True)


if __name__ == "__main__":
    main()
