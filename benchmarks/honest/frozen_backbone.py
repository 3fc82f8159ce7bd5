"""Fine-tuning: a frozen backbone in evaluation mode, a trained head, an iterable data set."""

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

torch.manual_seed(13)


class Stream(IterableDataset):
    def __iter__(self):
        g = torch.Generator().manual_seed(3)
        for _ in range(500):
            x = torch.randn(3, 12, 12, generator=g)
            yield x, int(x.sum() > 0)


backbone = nn.Sequential(nn.Conv2d(3, 12, 3, stride=2), nn.BatchNorm2d(12), nn.ReLU(), nn.Flatten())
for p in backbone.parameters():
    p.requires_grad_(False)
backbone.eval()
head = nn.Sequential(nn.Linear(300, 32), nn.ReLU(), nn.Dropout(0.3), nn.Linear(32, 2))
opt = torch.optim.AdamW(head.parameters(), lr=1e-3, amsgrad=True)
for epoch in range(40):
    for x, y in DataLoader(Stream(), batch_size=24):
        with torch.no_grad():
            features = backbone(x)
        loss = nn.functional.cross_entropy(head(features), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
