# semantic segmentation of synthetic street scenes
import argparse
import time

import torch
from torch import nn
from torch.nn import functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=28)
parser.add_argument("--batch", type=int, default=4)
parser.add_argument("--size", type=int, default=96)
parser.add_argument("--classes", type=int, default=8)


def scenes(n, size, classes, seed=0):
    """Sky, road, and rectangles that are houses, cars, people ..."""
    g = torch.Generator().manual_seed(seed)
    label = torch.zeros(n, size, size, dtype=torch.long)
    label[:, size // 2:] = 1
    for i in range(n):
        for c in range(2, classes):
            h, w = torch.randint(8, size // 3, (2,), generator=g).tolist()
            y, x = torch.randint(0, size - max(h, w), (2,), generator=g).tolist()
            label[i, y:y + h, x:x + w] = c
    colours = torch.rand(classes, 3, generator=g)
    image = colours[label].permute(0, 3, 1, 2) + 0.2 * torch.randn(n, 3, size, size, generator=g)
    return image.contiguous(), label


class ConvBnRelu(nn.Sequential):
    def __init__(self, cin, cout, stride=1, dilation=1):
        super().__init__(
            nn.Conv2d(cin, cout, 3, stride, dilation, dilation, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True))


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = ConvBnRelu(3, 16, 2)
        self.layer1 = ConvBnRelu(16, 32, 2)
        self.layer2 = nn.Sequential(ConvBnRelu(32, 64, 2), ConvBnRelu(64, 64, dilation=2))

    def forward(self, x):
        low = self.layer1(self.stem(x))
        return low, self.layer2(low)


class Decoder(nn.Module):
    """Fuses the low and the high level features, then predicts at the size of the image."""

    def __init__(self, classes, width=48):
        super().__init__()
        self.reduce = nn.Conv2d(32, 16, 1)
        self.fuse = ConvBnRelu(64 + 16, width)
        self.classifier = nn.Conv2d(width, classes, 1)

    def forward(self, low, high, size):
        high = F.interpolate(high, size=low.shape[-2:], mode="bilinear", align_corners=False)
        x = self.fuse(torch.cat([high, self.reduce(low)], 1))
        x = F.interpolate(x, size=size, mode="bilinear", align_corners=False)  # <<
        return self.classifier(x)  # <<


class Segmenter(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.backbone = Backbone()
        self.decoder = Decoder(classes)

    def forward(self, x):
        low, high = self.backbone(x)
        return self.decoder(low, high, x.shape[-2:])  # <<


def poly(optimizer, total):
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda k: (1 - k / (total + 1)) ** 0.9)


if __name__ == "__main__":
    args = parser.parse_args()
    torch.manual_seed(1)
    images, labels = scenes(240, args.size, args.classes)
    model = Segmenter(args.classes)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-4)
    steps = len(images) // args.batch
    scheduler = poly(optimizer, args.epochs * steps)
    for epoch in range(args.epochs):
        start = time.time()
        losses = []
        for idx in torch.randperm(len(images)).split(args.batch):
            flip = bool(torch.rand(()) < 0.5)
            x, y = images[idx], labels[idx]
            if flip:
                x, y = x.flip(-1), y.flip(-1)
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            scheduler.step()
            losses.append(loss.detach())
        print("epoch %d loss %.4f %.2fs" % (epoch, torch.stack(losses).mean(), time.time() - start), flush=True)
