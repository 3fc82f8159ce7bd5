"""A small U-net for segmentation with skip connections and upsampling, Dice plus cross entropy, workers asked for."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset


class Shapes(Dataset):
    def __len__(self):
        return 96

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        x, y, r = (torch.rand(3, generator=g) * torch.tensor([16.0, 16.0, 6.0]) + torch.tensor([0, 0, 3.0])).tolist()
        rows, cols = torch.meshgrid(torch.arange(16.0), torch.arange(16.0), indexing="ij")
        mask = (((rows - x) ** 2 + (cols - y) ** 2) < r * r).float()
        return (mask + 0.3 * torch.randn(16, 16, generator=g))[None], mask[None]


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 16, 3, padding=1)
        self.c, self.d = nn.Conv2d(24, 8, 3, padding=1), nn.Conv2d(8, 1, 1)
        self.norm = nn.BatchNorm2d(16)

    def forward(self, x):
        a = F.relu(self.a(x))
        b = F.relu(self.norm(self.b(F.max_pool2d(a, 2))))
        up = F.interpolate(b, scale_factor=2, mode="bilinear", align_corners=False)
        return self.d(F.relu(self.c(torch.cat([a, up], 1))))


if __name__ == "__main__":
    torch.manual_seed(16)
    net = UNet()
    opt = torch.optim.Adam(net.parameters(), lr=2e-3)
    loader = DataLoader(Shapes(), batch_size=12, shuffle=True, num_workers=1)
    for epoch in range(40):
        for x, y in loader:
            out = net(x)
            p = out.sigmoid()
            dice = 1 - (2 * (p * y).sum() + 1) / (p.sum() + y.sum() + 1)
            loss = F.binary_cross_entropy_with_logits(out, y) + dice
            opt.zero_grad()
            loss.backward()
            opt.step()
