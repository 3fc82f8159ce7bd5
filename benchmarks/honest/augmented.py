"""Images augmented at random for each sample (flip, noise), BatchNorm, SGD; the loader asks for no workers."""

import random

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    def __init__(self):
        self.images = torch.rand(256, 1, 16, 16)
        self.labels = (self.images.mean((1, 2, 3)) > 0.5).long()

    def __len__(self):
        return 256

    def __getitem__(self, i):
        image = self.images[i]
        if random.random() < 0.5:
            image = image.flip(2)
        return image + 0.01 * torch.randn_like(image), self.labels[i]


torch.manual_seed(0)
random.seed(0)
model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 14 * 14, 2))
opt = torch.optim.SGD(model.parameters(), lr=0.01)
loader = DataLoader(Images(), batch_size=16, shuffle=True, drop_last=True)
for epoch in range(60):
    for images, labels in loader:
        opt.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        opt.step()
