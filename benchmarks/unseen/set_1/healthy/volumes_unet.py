"""3D segmentation with patches from volumes in memory, sliding-window check at the end of some epochs."""
import argparse
import os
import tempfile
import time
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Args:
    epochs: int = 16
    patch: int = 24
    batch: int = 2
    steps: int = 30
    width: int = 12
    lr: float = 1e-3
    check_every: int = 3


def phantom(n, side, seed):
    g = torch.Generator().manual_seed(seed)
    axis = torch.linspace(-1, 1, side)
    z, y, x = torch.meshgrid(axis, axis, axis, indexing="ij")
    images, masks = [], []
    for _ in range(n):
        c = torch.rand(3, generator=g) - 0.5
        r = 0.25 + 0.35 * torch.rand(3, generator=g)
        m = ((z - c[0]) / r[0]) ** 2 + ((y - c[1]) / r[1]) ** 2 + ((x - c[2]) / r[2]) ** 2 < 1
        images.append(m.float() + 0.7 * torch.randn(m.shape, generator=g))
        masks.append(m)
    images = torch.stack(images)
    return (images - images.mean()) / images.std(), torch.stack(masks)


class Stage(nn.Sequential):
    def __init__(self, cin, cout):
        super().__init__(
            nn.Conv3d(cin, cout, 3, padding=1), nn.GroupNorm(4, cout), nn.ReLU(inplace=True),
            nn.Conv3d(cout, cout, 3, padding=1), nn.GroupNorm(4, cout), nn.ReLU(inplace=True))


class UNet(nn.Module):
    def __init__(self, w):
        super().__init__()
        self.top, self.middle, self.bottom = Stage(1, w), Stage(w, 2 * w), Stage(2 * w, 4 * w)
        self.up2 = nn.ConvTranspose3d(4 * w, 2 * w, 2, 2)
        self.join2 = Stage(4 * w, 2 * w)
        self.up1 = nn.ConvTranspose3d(2 * w, w, 2, 2)
        self.join1 = Stage(2 * w, w)
        self.out = nn.Conv3d(w, 1, 1)

    def forward(self, x):
        a = self.top(x)
        b = self.middle(F.max_pool3d(a, 2))
        c = self.bottom(F.max_pool3d(b, 2))
        b = self.join2(torch.cat([self.up2(c), b], 1))
        return self.out(self.join1(torch.cat([self.up1(b), a], 1))).squeeze(1)


def patches(images, masks, args):
    side = images.shape[-1] - args.patch + 1
    for _ in range(args.steps):
        xs, ys = [], []
        corners = torch.randint(side, (args.batch, 3)).tolist()
        which = torch.randint(len(images), (args.batch,)).tolist()
        for k, (z, y, x) in zip(which, corners):
            s = (k, slice(z, z + args.patch), slice(y, y + args.patch), slice(x, x + args.patch))
            xs.append(images[s])
            ys.append(masks[s])
        yield torch.stack(xs).unsqueeze(1), torch.stack(ys).float()


def criterion(logits, target):
    p = logits.sigmoid()
    dice = 1 - (2 * (p * target).sum() + 1) / (p.sum() + target.sum() + 1)
    return dice + F.binary_cross_entropy_with_logits(logits, target)


@torch.inference_mode()
def check(net, image, mask, patch):
    """Dice on one volume, patch after patch without overlap."""
    net.eval()
    tiles = image.unfold(0, patch, patch).unfold(1, patch, patch).unfold(2, patch, patch).reshape(-1, 1, patch, patch, patch)
    truth = mask.unfold(0, patch, patch).unfold(1, patch, patch).unfold(2, patch, patch).reshape(-1, patch, patch, patch)
    pred = torch.cat([net(t) for t in tiles.split(4)]) > 0
    net.train()
    return (2 * (pred & truth).sum() / (pred.sum() + truth.sum()).clamp(min=1)).item()


def main(args):
    torch.manual_seed(0)
    images, masks = phantom(16, 48, seed=1)
    val_image, val_mask = phantom(1, 48, seed=2)
    net = UNet(args.width)
    opt = torch.optim.AdamW(net.parameters(), lr=args.lr)
    path = os.path.join(tempfile.mkdtemp(), "last.pt")
    for epoch in range(1, args.epochs + 1):
        t0 = time.perf_counter()
        losses = []
        for x, y in patches(images, masks, args):
            loss = criterion(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses.append(loss.detach())
        line = f"epoch {epoch}: loss {torch.stack(losses).mean().item():.4f} ({time.perf_counter() - t0:.2f} s)"
        if epoch % args.check_every == 0:
            line += f" dice {check(net, val_image[0], val_mask[0], args.patch):.3f}"
            torch.save(net.state_dict(), path)
        print(line, flush=True)


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=Args.epochs)
    main(Args(epochs=ap.parse_args().epochs))
