"""PIL images decoded and prepared sample by sample, dropout, a validation pass after each epoch."""

import io

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Pictures(Dataset):
    def __init__(self, number, seed):
        rng = np.random.default_rng(seed)
        self.files, self.labels = [], []
        for index in range(number):
            pixels = rng.integers(0, 200, (20, 20, 3), dtype=np.uint8)
            pixels[:, :, index % 3] //= 3
            file = io.BytesIO()
            Image.fromarray(pixels).save(file, "PNG")
            self.files.append(file.getvalue())
            self.labels.append(index % 3)

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        image = Image.open(io.BytesIO(self.files[index])).convert("RGB").resize((16, 16), Image.Resampling.BILINEAR)
        array = (np.asarray(image, dtype=np.float32) / 255.0 - 0.45) / 0.25
        return torch.from_numpy(array.transpose(2, 0, 1)), self.labels[index]


torch.manual_seed(20)
train, valid = DataLoader(Pictures(240, 0), 16, shuffle=True, drop_last=True), DataLoader(Pictures(50, 1), 32)
net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Dropout(0.2), nn.Flatten(), nn.Linear(8 * 14 * 14, 3))
opt = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
for epoch in range(40):
    net.train()
    for images, labels in train:
        loss = nn.functional.cross_entropy(net(images), labels)
        opt.zero_grad()
        loss.backward()
        opt.step()
    net.eval()
    with torch.no_grad():
        right = sum((net(images).argmax(1) == labels).sum().item() for images, labels in valid)
