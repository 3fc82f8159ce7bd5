import argparse
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from PIL import Image
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=200)
parser.add_argument("--lr", type=float, default=0.01)
args = parser.parse_args()

random.seed(0)
np.random.seed(0)
torch.manual_seed(0)
torch.set_num_threads(1)  # shared box, be nice


def make_images(n, size=72):
    out = []
    rng = np.random.default_rng(0)
    for i in range(n):
        label = i % 4
        coarse = rng.integers(0, 255, (6, 6, 3), dtype=np.uint8)
        coarse[..., label % 3] //= 2 + label
        image = Image.fromarray(coarse).resize((size, size), Image.BILINEAR)
        out.append((np.asarray(image), label))
    return out


class Pets(Dataset):
    def __init__(self, items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        pixels, label = self.items[i]
        image = Image.fromarray(pixels)
        angle = random.uniform(-20, 20)
        image = image.resize((112, 112), Image.BICUBIC).rotate(angle, Image.BICUBIC)  # <<
        x, y = random.randint(0, 48), random.randint(0, 48)
        image = image.crop((x, y, x + 64, y + 64)).resize((48, 48), Image.LANCZOS)  # <<
        return torch.from_numpy(np.array(image)).permute(2, 0, 1), label


train_set = Pets(make_images(600))
loader = DataLoader(train_set, batch_size=24, shuffle=True, drop_last=True)  # <<

net = nn.Sequential(
    nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
    nn.Flatten(), nn.Linear(32, 4),
)
opt = torch.optim.SGD(net.parameters(), lr=args.lr, momentum=0.9)

for epoch in range(args.epochs):
    for step, (x, y) in enumerate(loader):  # <<
        loss = F.cross_entropy(net(x.float() / 255), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 10 == 0:
            print(f"epoch {epoch} step {step} loss {loss.item():.4f}")
