from torch import nn


class ConvUnit(nn.Sequential):
    def __init__(self, cin, cout, stride):
        super().__init__(
            nn.Conv2d(cin, cout, 3, stride=stride, padding=1, bias=False),
            nn.BatchNorm2d(cout),
            nn.ReLU(inplace=True),
        )


def chorus_net(classes, width=24):
    return nn.Sequential(
        ConvUnit(1, width, 2), ConvUnit(width, width, 1), ConvUnit(width, 2 * width, 2),
        ConvUnit(2 * width, 2 * width, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2),
        nn.Linear(2 * width, classes),
    )
