# Land cover from small multispectral tiles: forest, water, field, built-up.
import time
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F

CLASSES = 4
BANDS = 6


@dataclass
class Config:
    tiles: int = 2000
    side: int = 64
    batch: int = 16
    epochs: int = 4
    lr: float = 3e-3


def make_tiles(cfg, seed=77):
    g = torch.Generator().manual_seed(seed)
    spectra = torch.rand(CLASSES, BANDS, generator=g) * 120 + 50
    coarse = torch.randn(cfg.tiles, CLASSES, 8, 8, generator=g)
    labels = F.interpolate(coarse, size=cfg.side, mode="bicubic").argmax(1)
    images = torch.empty(cfg.tiles, cfg.side, cfg.side, BANDS, dtype=torch.uint8)
    for i in range(0, cfg.tiles, 200):
        clean = spectra[labels[i:i + 200]]
        noisy = clean + 35 * torch.randn(clean.shape, generator=g)
        images[i:i + 200] = noisy.clamp(0, 255).byte()
    # stored with the bands last, seen as N x C x H x W
    return images.permute(0, 3, 1, 2), labels


def augment(x, y):
    """The eight symmetries of the square, one for the whole batch, and a gain per tile."""
    if torch.rand(()) < 0.5:
        x, y = x.flip(3), y.flip(2)
    k = int(torch.randint(4, ()))
    x, y = torch.rot90(x, k, (2, 3)), torch.rot90(y, k, (1, 2))
    return x * (0.8 + 0.4 * torch.rand(len(x), 1, 1, 1)), y


def conv(i, o, stride=1):
    return nn.Sequential(nn.Conv2d(i, o, 3, stride, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True))


class CoverNet(nn.Module):
    def __init__(self, w=24):
        super().__init__()
        self.d0 = nn.Sequential(conv(BANDS, w), conv(w, w))
        self.d1 = nn.Sequential(conv(w, 2 * w, 2), conv(2 * w, 2 * w))
        self.d2 = nn.Sequential(conv(2 * w, 3 * w, 2), conv(3 * w, 3 * w))
        self.u1 = conv(5 * w, 2 * w)
        self.u0 = conv(3 * w, w)
        self.out = nn.Conv2d(w, CLASSES, 1)

    def forward(self, x):
        a = self.d0(x)
        b = self.d1(a)
        c = self.d2(b)
        b = self.u1(torch.cat([b, F.interpolate(c, scale_factor=2)], 1))
        a = self.u0(torch.cat([a, F.interpolate(b, scale_factor=2)], 1))
        return self.out(a)


def normalize(x):
    return (x.float() - 110) / 50


@torch.no_grad()
def mean_iou(net, images, labels, batch=50):
    net.eval()
    table = torch.zeros(CLASSES * CLASSES, dtype=torch.long)
    for i in range(0, len(images), batch):
        pred = net(normalize(images[i:i + batch])).argmax(1)
        table += torch.bincount((labels[i:i + batch] * CLASSES + pred).flatten(), minlength=CLASSES ** 2)
    table = table.view(CLASSES, CLASSES).float()
    hit = table.diagonal()
    return (hit / (table.sum(0) + table.sum(1) - hit)).mean().item()


if __name__ == "__main__":
    cfg = Config()
    torch.manual_seed(77)
    images, labels = make_tiles(cfg)
    split = cfg.tiles * 9 // 10
    net = CoverNet().to(memory_format=torch.channels_last)
    opt = torch.optim.SGD(net.parameters(), lr=cfg.lr, momentum=0.9, weight_decay=1e-4)
    for epoch in range(cfg.epochs):
        net.train()
        t0, losses = time.time(), []
        for step, rows in enumerate(torch.randperm(split).split(cfg.batch)):
            x, y = augment(normalize(images[rows]), labels[rows])
            loss = F.cross_entropy(net(x.contiguous(memory_format=torch.channels_last)), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses.append(loss.item())
            if step % 25 == 0:
                print(f"    step {step:3d}  loss {losses[-1]:.4f}")
        print(f"epoch {epoch}  loss {sum(losses) / len(losses):.4f}  "
              f"mIoU {mean_iou(net, images[split:], labels[split:]):.3f}  {time.time() - t0:.1f}s")
