import torch.nn as nn

from .registry import register


def conv_bn(i, o, stride=1):
    return nn.Sequential(nn.Conv2d(i, o, 3, stride, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True))


class Residual(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.f = nn.Sequential(conv_bn(c, c), nn.Conv2d(c, c, 3, 1, 1, bias=False), nn.BatchNorm2d(c))
        self.act = nn.ReLU(inplace=True)

    def forward(self, x):
        return self.act(x + self.f(x))


@register("net", "resnet")
class SmallResNet(nn.Module):
    def __init__(self, width, blocks, classes):
        super().__init__()
        layers = [conv_bn(1, width)]
        for s in range(3):
            c = width * 2 ** s
            if s:
                layers.append(conv_bn(c // 2, c, 2))
            layers += [Residual(c) for _ in range(blocks)]
        self.features = nn.Sequential(*layers)
        self.fc = nn.Linear(c, classes)

    def forward(self, x):
        return self.fc(self.features(x).mean((2, 3)))
