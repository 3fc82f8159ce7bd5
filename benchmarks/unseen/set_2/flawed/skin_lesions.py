"""Skin-lesion segmentation trainer. Contours come as polygons and are rasterised once."""
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import nn
from torch.utils.data import DataLoader, Dataset


class LesionDataset(Dataset):
    """Images plus the annotators' contours (kept for overlays and agreement statistics)."""

    def __init__(self, n, size=64, seed=0, annotators=3):
        rng = np.random.default_rng(seed)
        self.records, self.images, self.masks = [], [], []
        yy, xx = np.mgrid[:size, :size].astype(np.float32)
        phi = np.linspace(0, 2 * np.pi, 40, endpoint=False)
        for k in range(n):
            c, r = rng.uniform(22, size - 22, 2), rng.uniform(8, 18)
            wave = 1 + 0.15 * np.sin(rng.integers(2, 6) * phi + rng.uniform(0, 6))
            contours = []
            for _ in range(annotators):
                rad = r * wave * rng.normal(1, 0.03, phi.shape)
                contours.append([(float(c[0] + a * np.cos(p)), float(c[1] + a * np.sin(p))) for a, p in zip(rad, phi)])
            mask = Image.new("L", (size, size))
            ImageDraw.Draw(mask).polygon(contours[0], fill=1)
            m = np.asarray(mask)
            skin = np.array([0.85, 0.65, 0.55])[:, None, None] + rng.normal(0, 0.03, (3, 1, 1))
            img = skin * (1 - 0.1 * xx / size) - m * np.array([0.25, 0.3, 0.2])[:, None, None] * rng.uniform(0.5, 1.2)
            img = np.clip(img + rng.normal(0, 0.08, img.shape), 0, 1)
            self.images.append((img * 255).astype(np.uint8))
            self.masks.append(m)
            self.records.append({"id": f"ISIC_{k:07d}", "contours": contours, "site": str(rng.choice(["arm", "back"]))})

    def __len__(self):
        return len(self.records)

    def __getitem__(self, i):
        x = torch.from_numpy(self.images[i]).float() / 255
        y = torch.from_numpy(self.masks[i]).float()[None]
        if torch.rand(()) < 0.5:
            x, y = x.flip(-1), y.flip(-1)
        return x, y


def cbr(i, o, d=1):
    return nn.Sequential(nn.Conv2d(i, o, 3, padding=d, dilation=d, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True))


class DilatedNet(nn.Module):
    def __init__(self, w=16):
        super().__init__()
        self.enc = nn.Sequential(cbr(3, w), nn.MaxPool2d(2), cbr(w, 2 * w), cbr(2 * w, 2 * w, 2), cbr(2 * w, 2 * w, 4))
        self.dec = nn.Sequential(nn.Upsample(scale_factor=2, mode="bilinear"), cbr(2 * w, w), nn.Conv2d(w, 1, 1))

    def forward(self, x):
        return self.dec(self.enc(x))


class Trainer:
    def __init__(self, model, dataset, out_dir, lr=2e-3, batch=16, save_every=20):
        self.model = model.to(memory_format=torch.channels_last)
        self.dataset = dataset
        self.batch = batch
        self.optimizer = torch.optim.Adam(model.parameters(), lr=lr)
        self.history = {"loss": [], "dice": []}
        self.out_dir = Path(out_dir)
        self.save_every = save_every
        self.step = 0

    def save(self):
        tmp = self.out_dir / "last.tmp"
        torch.save(self, tmp)  # <<
        tmp.rename(self.out_dir / "last.pt")

    def train_step(self, x, y):
        x = x.to(memory_format=torch.channels_last)
        logits = self.model(x)
        loss = nn.functional.binary_cross_entropy_with_logits(logits, y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        pred = logits.detach() > 0
        dice = 2 * (pred * y).sum() / (pred.sum() + y.sum()).clamp(min=1)
        return loss.item(), dice.item()

    def fit(self, epochs):
        for epoch in range(epochs):
            t0 = time.time()
            loader = DataLoader(self.dataset, self.batch, shuffle=True, drop_last=True)
            for x, y in loader:
                loss, dice = self.train_step(x, y)
                self.history["loss"].append(loss)
                self.history["dice"].append(dice)
                self.step += 1
                if self.step % self.save_every == 0:
                    self.save()  # <<
            k = len(loader)
            print(f"epoch {epoch}: loss {np.mean(self.history['loss'][-k:]):.4f} "
                  f"dice {np.mean(self.history['dice'][-k:]):.4f} ({time.time() - t0:.1f}s)", flush=True)
        self.save()


if __name__ == "__main__":
    torch.manual_seed(6)
    trainer = Trainer(DilatedNet(), LesionDataset(1800), tempfile.mkdtemp(prefix="skin_lesions_"))
    trainer.fit(epochs=4)
