import torch
from torch import nn
import torch.nn.functional as F


def double(i, o):
    return nn.Sequential(
        nn.Conv3d(i, o, 3, padding=1), nn.InstanceNorm3d(o, affine=True), nn.LeakyReLU(0.01, True),
        nn.Conv3d(o, o, 3, padding=1), nn.InstanceNorm3d(o, affine=True), nn.LeakyReLU(0.01, True),
    )


class DeepUNet(nn.Module):
    def __init__(self, classes=3, base=8):
        super().__init__()
        self.e1, self.e2, self.e3 = double(1, base), double(base, 2 * base), double(2 * base, 4 * base)
        self.d2, self.d1 = double(6 * base, 2 * base), double(3 * base, base)
        self.heads = nn.ModuleList([nn.Conv3d(c, classes, 1) for c in (base, 2 * base, 4 * base)])

    def forward(self, x):
        a = self.e1(x)
        b = self.e2(F.max_pool3d(a, 2))
        c = self.e3(F.max_pool3d(b, 2))
        up = self.d2(torch.cat([F.interpolate(c, scale_factor=2), b], 1))
        top = self.d1(torch.cat([F.interpolate(up, scale_factor=2), a], 1))
        return [self.heads[0](top), self.heads[1](up), self.heads[2](c)]
