"""A small residual network with batch norm on random-crop images, SGD with momentum, cosine schedule per step."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(2)


class Images(Dataset):
    def __init__(self, n):
        g = torch.Generator().manual_seed(5)
        self.labels = torch.randint(0, 5, (n,), generator=g)
        self.images = torch.randn(n, 3, 20, 20, generator=g) + self.labels[:, None, None, None] * 0.2

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        large = F.interpolate(self.images[i : i + 1], scale_factor=1.6, mode="bilinear", align_corners=False)
        return large[0, :, 8:24, 8:24] / 2, self.labels[i]


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.a, self.b = nn.Conv2d(c, c, 3, padding=1, bias=False), nn.Conv2d(c, c, 3, padding=1)
        self.na, self.nb = nn.BatchNorm2d(c), nn.BatchNorm2d(c)

    def forward(self, x):
        return F.relu(x + self.nb(self.b(F.relu(self.na(self.a(x))))))


model = nn.Sequential(
    nn.Conv2d(3, 16, 3, padding=1),
    Block(16),
    nn.MaxPool2d(2),
    Block(16),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Linear(16, 5),
)
train = DataLoader(Images(330), batch_size=32, shuffle=True)
test = DataLoader(Images(64), batch_size=64)
opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 400)

for epoch in range(40):
    model.train()
    for x, y in train:
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        schedule.step()
    model.eval()
    with torch.no_grad():
        right = sum((model(x).argmax(1) == y).sum().item() for x, y in test)
    print(epoch, loss.item(), right)
