"""Foreground masks for game sprites (pixel art, 64x64). PIL augmentation, U-Net."""
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from PIL import Image, ImageDraw, ImageOps
from torch.utils.data import DataLoader, Dataset


def draw_sprite(rnd):
    bg = np.full((64, 64, 3), [rnd.randint(0, 120) for _ in range(3)], np.uint8)
    bg[::rnd.randint(4, 9)] //= 2
    img = Image.fromarray(bg)
    mask = Image.new("L", (64, 64))
    for _ in range(rnd.randint(2, 5)):
        x, y = rnd.randint(4, 44), rnd.randint(4, 44)
        w, h = rnd.randint(6, 20), rnd.randint(6, 20)
        colour = tuple(rnd.randint(100, 255) for _ in range(3))
        shape = rnd.choice(["ellipse", "rectangle"])
        getattr(ImageDraw.Draw(img), shape)((x, y, x + w, y + h), fill=colour)
        getattr(ImageDraw.Draw(mask), shape)((x, y, x + w, y + h), fill=255)
    return img, mask


class Sprites(Dataset):
    def __init__(self, n, seed, train):
        rnd = random.Random(seed)
        self.items = [draw_sprite(rnd) for _ in range(n)]
        self.train = train

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        img, mask = self.items[i]
        if self.train:
            if random.random() < 0.5:
                img, mask = ImageOps.mirror(img), ImageOps.mirror(mask)
            angle = random.uniform(-20, 20)
            img = img.rotate(angle, resample=Image.BILINEAR)
            mask = mask.rotate(angle)
        img = torch.from_numpy(np.array(img)).permute(2, 0, 1).float() / 255
        mask = torch.from_numpy(np.array(mask)).unsqueeze(0).float() / 255
        return img, mask


def double_conv(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.ReLU(True), nn.Conv2d(o, o, 3, padding=1), nn.ReLU(True))


class UNet(nn.Module):
    def __init__(self, w=12):
        super().__init__()
        self.e1, self.e2, self.e3 = double_conv(3, w), double_conv(w, 2 * w), double_conv(2 * w, 4 * w)
        self.u2, self.u1 = nn.ConvTranspose2d(4 * w, 2 * w, 2, 2), nn.ConvTranspose2d(2 * w, w, 2, 2)
        self.d2, self.d1 = double_conv(4 * w, 2 * w), double_conv(2 * w, w)
        self.out = nn.Conv2d(w, 1, 1)

    def forward(self, x):
        a = self.e1(x)
        b = self.e2(F.max_pool2d(a, 2))
        c = self.e3(F.max_pool2d(b, 2))
        b = self.d2(torch.cat([b, self.u2(c)], 1))
        a = self.d1(torch.cat([a, self.u1(b)], 1))
        return self.out(a)


def iou(logits, mask):
    p = logits > 0
    m = mask > 0.5
    return ((p & m).sum() / (p | m).sum().clamp(min=1)).item()


def main():
    random.seed(44)
    torch.manual_seed(44)
    train_dl = DataLoader(Sprites(400, seed=1, train=True), batch_size=8, shuffle=True)
    val_dl = DataLoader(Sprites(40, seed=2, train=False), batch_size=8)
    net = UNet()
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    for epoch in range(7):
        net.train()
        losses = []
        for img, mask in train_dl:
            logits = net(img)
            p = logits.sigmoid()
            dice = 1 - 2 * (p * mask).sum() / (p.sum() + mask.sum() + 1)
            loss = F.binary_cross_entropy_with_logits(logits, mask) + dice
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            losses.append(loss.item())
        net.eval()
        with torch.no_grad():
            score = np.mean([iou(net(img), mask) for img, mask in val_dl])
        print(f"epoch {epoch}: loss {np.mean(losses):.4f}, val IoU {score:.4f}")


if __name__ == "__main__":
    main()
