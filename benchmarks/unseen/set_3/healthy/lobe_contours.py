"""2-D lung lobe segmentation with elastic deformations drawn anew for every slice."""
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

SIDE = 64


class LobeSlices(Dataset):
    def __init__(self, n, seed, augment):
        self.augment = augment
        g = torch.Generator().manual_seed(seed)
        ax = torch.linspace(-1, 1, SIDE)
        yy, xx = torch.meshgrid(ax, ax, indexing="ij")
        self.images = torch.empty(n, 1, SIDE, SIDE)
        self.masks = torch.empty(n, SIDE, SIDE, dtype=torch.uint8)
        for i in range(n):
            lab = torch.zeros(SIDE, SIDE, dtype=torch.uint8)
            for k, cx in enumerate((-0.45, 0.45)):
                dx, dy, rx, ry = (torch.rand(4, generator=g) * 0.15).tolist()
                inside = ((xx - cx - dx) / (0.28 + rx)) ** 2 + ((yy - dy) / (0.55 + ry)) ** 2 < 1
                lab[inside & (yy < 0.1 + dx)] = 2 * k + 1
                lab[inside & (yy >= 0.1 + dx)] = 2 * k + 2
            self.masks[i] = lab
            self.images[i, 0] = 0.25 * lab + 0.3 * torch.randn(SIDE, SIDE, generator=g)
        base = torch.stack([xx, yy], -1)
        self.base = base

    def __len__(self):
        return len(self.images)

    def elastic(self, image, mask):
        rough = torch.randn(1, 2, 7, 7) * 0.12
        shift = F.interpolate(rough, size=SIDE, mode="bicubic", align_corners=True)[0].permute(1, 2, 0)
        grid = (self.base + shift).unsqueeze(0)
        image = F.grid_sample(image.unsqueeze(0), grid, mode="bilinear", padding_mode="border", align_corners=True)[0]
        mask = F.grid_sample(mask[None, None].float(), grid, mode="nearest", align_corners=True)[0, 0]
        return image, mask

    def __getitem__(self, i):
        image, mask = self.images[i], self.masks[i]
        if self.augment:
            image, mask = self.elastic(image, mask)
            image = image * (0.8 + 0.4 * torch.rand(())) + 0.1 * torch.randn_like(image)
        return image, mask.long()


def conv(i, o):
    return nn.Sequential(
        nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(True),
        nn.Conv2d(o, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(True),
    )


class LobeNet(nn.Module):
    def __init__(self, w=16):
        super().__init__()
        self.a, self.b, self.c = conv(1, w), conv(w, 2 * w), conv(2 * w, 4 * w)
        self.d, self.e = conv(6 * w, 2 * w), conv(3 * w, w)
        self.out = nn.Conv2d(w, 5, 1)

    def forward(self, x):
        a = self.a(x)
        b = self.b(F.max_pool2d(a, 2))
        c = self.c(F.max_pool2d(b, 2))
        d = self.d(torch.cat([b, F.interpolate(c, scale_factor=2)], 1))
        return self.out(self.e(torch.cat([a, F.interpolate(d, scale_factor=2)], 1)))


def dice(net, loader):
    net.eval()
    inter, size = torch.zeros(5), torch.zeros(5)
    with torch.no_grad():
        for x, y in loader:
            p = net(x.contiguous(memory_format=torch.channels_last)).argmax(1)
            for k in range(5):
                inter[k] += ((p == k) & (y == k)).sum()
                size[k] += (p == k).sum() + (y == k).sum()
    return (2 * inter / size.clamp(min=1))[1:].mean().item()


def main():
    torch.manual_seed(0)
    train = DataLoader(LobeSlices(1000, 0, True), batch_size=10, shuffle=True, drop_last=True, num_workers=1, persistent_workers=True)
    val = DataLoader(LobeSlices(100, 1, False), batch_size=20)
    net = LobeNet().to(memory_format=torch.channels_last)
    opt = torch.optim.Adam(net.parameters(), lr=2e-3)
    for epoch in range(3):
        net.train()
        t0 = time.time()
        for i, (x, y) in enumerate(train):
            loss = F.cross_entropy(net(x.contiguous(memory_format=torch.channels_last)), y)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            if i % 25 == 0:
                print(f"epoch {epoch} it {i} loss {loss.item():.3f}", flush=True)
        print(f"epoch {epoch} dice {dice(net, val):.3f} {time.time() - t0:.1f}s", flush=True)


if __name__ == "__main__":
    main()
