# %% [markdown]
# # Which bird is at the feeder?
# Small crops from the motion camera, 10 species. Baseline CNN + a bit of augmentation,
# because the camera is moved around and the light changes all the time.

# %%
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from PIL import Image, ImageEnhance, ImageFilter, ImageOps
from torch.utils.data import DataLoader, Dataset

SEED = 2024
random.seed(SEED)
np.random.seed(SEED)
torch.manual_seed(SEED)

N_SPECIES = 10
SIZE = 64
EPOCHS = 8
BATCH = 32

# %%
def make_crops(n):
    """Synthetic crops: a coloured blob with stripes before a noisy background."""
    yy, xx = np.mgrid[:SIZE, :SIZE].astype(np.float32)
    crops, labels = [], []
    for _ in range(n):
        k = np.random.randint(N_SPECIES)
        cx, cy = np.random.uniform(20, 44, 2)
        body = ((xx - cx) ** 2 / (160 + 12 * k) + (yy - cy) ** 2 / (90 + 5 * k)) < 1
        img = np.random.uniform(70, 130, (SIZE, SIZE, 3)).astype(np.float32)
        colour = np.array([60 + 19 * k, 230 - 17 * k, 40 + (k * 71) % 200], np.float32)
        stripes = 0.75 + 0.25 * np.sign(np.sin(xx * (0.3 + 0.09 * k)))
        img[body] = (colour * stripes[..., None])[body]
        crops.append(img.clip(0, 255).astype(np.uint8))
        labels.append(k)
    return crops, labels


# %%
def augment(img):
    options = [
        img,
        ImageOps.mirror(img),
        img.rotate(12, resample=Image.BICUBIC),  # <<
        img.rotate(-12, resample=Image.BICUBIC),  # <<
        img.filter(ImageFilter.GaussianBlur(1.5)),  # <<
        img.filter(ImageFilter.MedianFilter(3)),  # <<
        ImageEnhance.Color(img).enhance(1.5),  # <<
        ImageEnhance.Contrast(img).enhance(1.4),  # <<
        ImageOps.autocontrast(img, cutoff=2),  # <<
        ImageOps.equalize(img),  # <<
    ]
    return random.choice(options)  # <<


class FeederCrops(Dataset):
    def __init__(self, crops, labels, train):
        self.crops, self.labels, self.train = crops, labels, train

    def __len__(self):
        return len(self.crops)

    def __getitem__(self, i):
        img = Image.fromarray(self.crops[i])
        if self.train:
            img = augment(img)  # <<
        x = torch.from_numpy(np.array(img)).permute(2, 0, 1).float().div_(255)
        return x, self.labels[i]


class BirdNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1 = nn.Conv2d(3, 12, 5, stride=2, padding=2)
        self.c2 = nn.Conv2d(12, 24, 3, padding=1)
        self.c3 = nn.Conv2d(24, 32, 3, padding=1)
        self.fc = nn.Linear(32, N_SPECIES)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.c1(x)), 2)
        x = F.max_pool2d(F.relu(self.c2(x)), 2)
        x = F.relu(self.c3(x)).mean(dim=(2, 3))
        return self.fc(x)


# %%
crops, labels = make_crops(1500)
train_ds = FeederCrops(crops[:1300], labels[:1300], train=True)
test_ds = FeederCrops(crops[1300:], labels[1300:], train=False)
train_dl = DataLoader(train_ds, batch_size=BATCH, shuffle=True, drop_last=True)
test_dl = DataLoader(test_ds, batch_size=100)

model = BirdNet()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

# %%
for epoch in range(EPOCHS):
    model.train()
    tot, seen = 0.0, 0
    for x, y in train_dl:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tot += loss.item() * len(y)
        seen += len(y)

    model.eval()
    hits = 0
    with torch.no_grad():
        for x, y in test_dl:
            hits += (model(x).argmax(1) == y).sum().item()
    print("epoch %d | train loss %.4f | test acc %.3f" % (epoch, tot / seen, hits / len(test_ds)))
