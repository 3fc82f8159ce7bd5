# Nuclei segmentation on whole-slide crops. Iteration based training (no epochs), like in our TF1 code.
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

PATCH = 48
BATCH_SIZE = 8
MAX_ITER = 400
PRINT_EVERY = 50
LR = 1e-3


def synth_slide(rng, size=400):
    yy, xx = np.mgrid[:size, :size]
    mask = np.zeros((size, size), np.float32)
    for _ in range(220):
        cy, cx = rng.integers(0, size, 2)
        r = rng.uniform(4, 9)
        y0, y1, x0, x1 = max(cy - 10, 0), cy + 11, max(cx - 10, 0), cx + 11
        inside = (yy[y0:y1, x0:x1] - cy) ** 2 + (xx[y0:y1, x0:x1] - cx) ** 2 < r * r
        mask[y0:y1, x0:x1][inside] = 1
    img = 0.8 - 0.35 * mask + 0.12 * rng.standard_normal((size, size))
    return img.astype(np.float32), mask


class SlidePatches(Dataset):
    """Every possible top-left corner in every slide is a sample."""

    def __init__(self, n_slides, seed):
        rng = np.random.default_rng(seed)
        slides = [synth_slide(rng) for _ in range(n_slides)]
        self.images = np.stack([s[0] for s in slides])
        self.masks = np.stack([s[1] for s in slides])
        self.corners = self.images.shape[1] - PATCH

    def __len__(self):
        return len(self.images) * self.corners ** 2

    def __getitem__(self, idx):
        s, rest = divmod(idx, self.corners ** 2)
        y, x = divmod(rest, self.corners)
        img = self.images[s, y:y + PATCH, x:x + PATCH]
        msk = self.masks[s, y:y + PATCH, x:x + PATCH]
        return torch.from_numpy(img[None].copy()), torch.from_numpy(msk[None].copy())


class TinyUNet(nn.Module):
    def __init__(self, w=12):
        super().__init__()
        self.d1 = nn.Sequential(nn.Conv2d(1, w, 3, padding=1), nn.ReLU(), nn.Conv2d(w, w, 3, padding=1), nn.ReLU())
        self.d2 = nn.Sequential(nn.Conv2d(w, 2 * w, 3, padding=1), nn.ReLU())
        self.up = nn.ConvTranspose2d(2 * w, w, 2, stride=2)
        self.out = nn.Sequential(nn.Conv2d(2 * w, w, 3, padding=1), nn.ReLU(), nn.Conv2d(w, 1, 1))

    def forward(self, x):
        a = self.d1(x)
        b = self.d2(F.max_pool2d(a, 2))
        return self.out(torch.cat([a, self.up(b)], 1))


def dice(logits, target):
    p = (logits > 0).float()
    return (2 * (p * target).sum() / (p.sum() + target.sum() + 1e-6)).item()


torch.manual_seed(7)
dataset = SlidePatches(n_slides=8, seed=7)
loader = DataLoader(dataset, batch_size=BATCH_SIZE, shuffle=True, drop_last=True)
print("patches available:", len(dataset))

net = TinyUNet()
optimizer = torch.optim.Adam(net.parameters(), lr=LR)
bce = nn.BCEWithLogitsLoss()

loss_sum, dice_sum = 0.0, 0.0
for it in range(1, MAX_ITER + 1):
    images, masks = next(iter(loader))  # <<
    logits = net(images)
    loss = bce(logits, masks)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

    loss_sum += loss.item()
    dice_sum += dice(logits.detach(), masks)
    if it % PRINT_EVERY == 0:
        print(f"iter {it}/{MAX_ITER}  loss {loss_sum / PRINT_EVERY:.4f}  dice {dice_sum / PRINT_EVERY:.4f}")
        loss_sum, dice_sum = 0.0, 0.0
