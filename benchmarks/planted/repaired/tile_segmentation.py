import argparse

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

PALETTE = {(0, 0, 0): 0, (255, 0, 0): 1, (0, 255, 0): 2, (0, 0, 255): 3}


class Tiles(Dataset):
    def __init__(self, n=192, size=40, seed=5):
        rng = np.random.default_rng(seed)
        colours = np.array(list(PALETTE), dtype=np.uint8)
        blocks = rng.integers(0, 4, (n, 5, 5)).repeat(size // 5, axis=1).repeat(size // 5, axis=2)
        self.masks = colours[blocks]
        self.images = (self.masks // 2 + rng.integers(0, 120, self.masks.shape)).astype(np.uint8)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        image = torch.from_numpy(self.images[i]).permute(2, 0, 1).float() / 255
        rgb = self.masks[i]
        code = (rgb // 255).astype(np.int64) @ np.array([1, 2, 4])
        mask = np.array([0, 1, 2, 0, 3])[code]
        return image, torch.from_numpy(mask)


def block(cin, cout):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, padding=1), nn.BatchNorm2d(cout), nn.ReLU())


class SmallUNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = block(3, 16)
        self.mid = block(16, 32)
        self.up = block(48, 16)
        self.out = nn.Conv2d(16, 4, 1)

    def forward(self, x):
        a = self.down(x)
        b = self.mid(nn.functional.max_pool2d(a, 2))
        b = nn.functional.interpolate(b, scale_factor=2)
        return self.out(self.up(torch.cat([a, b], 1)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=200)
    args = parser.parse_args()
    torch.manual_seed(0)
    loader = DataLoader(Tiles(), batch_size=8, shuffle=True)
    net = SmallUNet()
    opt = torch.optim.Adam(net.parameters(), 1e-3)
    for epoch in range(args.epochs):
        net.train()
        for i, (image, mask) in enumerate(loader):
            opt.zero_grad()
            loss = nn.functional.cross_entropy(net(image), mask)
            loss.backward()
            opt.step()
            if i % 8 == 0:
                print("epoch %d  it %d  loss %.5f" % (epoch, i, loss.item()))


main()
