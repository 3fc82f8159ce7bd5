"""x2 super-resolution with a feature-space loss.

The feature network is a small VGG that was trained for classification before; its
weights are read from a checkpoint file.
"""
import argparse
import os
import tempfile
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class SmallVGG(nn.Module):
    plan = (24, 24, "M", 48, 48)

    def __init__(self):
        super().__init__()
        layers, cin = [], 3
        for item in self.plan:
            if item == "M":
                layers.append(nn.MaxPool2d(2))
            else:
                layers += [nn.Conv2d(cin, item, 3, padding=1), nn.ReLU()]
                cin = item
        self.layers = nn.Sequential(*layers)

    def forward(self, x):
        return self.layers(x)


class FeatureLoss(nn.Module):
    """L1 distance between the features of both images."""

    def __init__(self, checkpoint):
        super().__init__()
        self.net = SmallVGG()  # <<
        self.net.load_state_dict(torch.load(checkpoint))
        self.net.eval()  # <<
        self.register_buffer("mean", torch.tensor([0.485, 0.456, 0.406]).view(1, 3, 1, 1))
        self.register_buffer("std", torch.tensor([0.229, 0.224, 0.225]).view(1, 3, 1, 1))

    def features(self, x):
        return self.net((x - self.mean) / self.std)  # <<

    def forward(self, output, target):
        return F.l1_loss(self.features(output), self.features(target))  # <<


class ResBlock(nn.Module):
    def __init__(self, ch):
        super().__init__()
        self.a = nn.Conv2d(ch, ch, 3, padding=1)
        self.b = nn.Conv2d(ch, ch, 3, padding=1)

    def forward(self, x):
        return x + 0.1 * self.b(F.relu(self.a(x)))


class EDSR(nn.Module):
    def __init__(self, ch=24, blocks=3):
        super().__init__()
        self.head = nn.Conv2d(3, ch, 3, padding=1)
        self.body = nn.Sequential(*[ResBlock(ch) for _ in range(blocks)])
        self.tail = nn.Sequential(nn.Conv2d(ch, 12, 3, padding=1), nn.PixelShuffle(2))

    def forward(self, x):
        y = self.head(x)
        return self.tail(self.body(y) + y) + F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)


class Trainer:
    def __init__(self, model, feature_loss, images, batch_size, lr=5e-4, feature_weight=0.1):
        self.model = model
        self.feature_loss = feature_loss
        self.images = images
        self.batch_size = batch_size
        self.feature_weight = feature_weight
        self.optimizer = torch.optim.Adam(model.parameters(), lr=lr)

    def batches(self):
        for idx in torch.randperm(len(self.images)).split(self.batch_size):
            high = self.images[idx]
            yield F.avg_pool2d(high, 2), high

    def loss(self, low, high):
        output = self.model(low)
        pixel = F.l1_loss(output, high)
        return pixel + self.feature_weight * self.feature_loss(output, high)  # <<

    def train_step(self, low, high):
        loss = self.loss(low, high)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def fit(self, epochs):
        for epoch in range(epochs):
            start = time.perf_counter()
            losses = [self.train_step(*batch) for batch in self.batches()]
            mean = torch.stack(losses).mean().item()
            print(f"epoch {epoch + 1}/{epochs} loss {mean:.5f} time {time.perf_counter() - start:.2f}", flush=True)


def make_images(n, size=48):
    g = torch.Generator().manual_seed(2)
    coarse = torch.rand(n, 3, 12, 12, generator=g)
    smooth = F.interpolate(coarse, size=size, mode="bicubic", align_corners=False)
    stripes = (torch.arange(size) // 3 % 2).float().view(1, 1, 1, -1) * torch.rand(n, 3, 1, 1, generator=g) * 0.2
    return (smooth + stripes).clamp(0, 1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=25)
    args = parser.parse_args()
    torch.manual_seed(0)
    checkpoint = os.path.join(tempfile.mkdtemp(), "vgg_small.pt")
    torch.save(SmallVGG().state_dict(), checkpoint)
    trainer = Trainer(EDSR(), FeatureLoss(checkpoint), make_images(200), batch_size=4)
    trainer.fit(args.epochs)


if __name__ == "__main__":
    main()
