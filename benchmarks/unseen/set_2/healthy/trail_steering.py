"""Steering along forest trails, cloned from recorded drives (JPEG frames on disk)."""
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset

W, H = 96, 72


def record(folder: Path, frames=2400, seed=19):
    rng = np.random.default_rng(seed)
    yy, xx = np.mgrid[:H, :W]
    depth = (yy - 20) / (H - 20)
    steering = []
    curve = 0.0
    for i in range(frames):
        curve = 0.95 * curve + rng.normal(0, 0.12)
        offset = rng.normal(0, 0.15)
        middle = W / 2 + W * (offset * depth + curve * (1 - depth) ** 2 * 0.6)
        trail = (abs(xx - middle) < 3 + 22 * depth) & (depth > 0)
        img = np.where(trail[..., None], (150, 120, 80), (40, 90, 45)) + rng.normal(0, 10, (H, W, 3))
        img[:20] = (150, 180, 220)
        Image.fromarray(np.clip(img, 0, 255).astype(np.uint8)).save(folder / f"{i:05d}.jpg", quality=90)
        steering.append(np.float32(np.clip(0.8 * curve + offset, -1, 1)))
    np.save(folder / "steering.npy", np.array(steering))


class Drives(Dataset):
    """Each frame is shifted sideways (and the steering corrected), shaded and blurred anew at every visit."""

    def __init__(self, folder):
        self.frames = sorted(folder.glob("*.jpg"))
        self.steering = np.load(folder / "steering.npy")

    def __len__(self):
        return len(self.frames)

    def __getitem__(self, i):
        img = np.asarray(Image.open(self.frames[i]), dtype=np.float32)
        angle = float(self.steering[i])
        shift, edge, dim, speckle = torch.rand(4).tolist()
        dx = int(shift * 17) - 8
        img = np.roll(img, dx, axis=1)
        angle += dx / 80
        img[:, :int(edge * W)] *= 0.5 + 0.5 * dim
        if speckle < 0.3:
            img[1:-1] = (img[:-2] + img[1:-1] + img[2:]) / 3
        if torch.rand(()) < 0.5:
            img, angle = img[:, ::-1], -angle
        return torch.from_numpy(np.ascontiguousarray(img)).permute(2, 0, 1), angle


class Driver(nn.Module):
    def __init__(self):
        super().__init__()
        chans = [3, 24, 40, 56, 56]
        layers = []
        for i, (a, b) in enumerate(zip(chans, chans[1:])):
            layers += [nn.Conv2d(a, b, 5 if i < 2 else 3, stride=2 if i else 1, padding=1), nn.ReLU(inplace=True)]
        self.conv = nn.Sequential(*layers, nn.AdaptiveAvgPool2d((3, 4)), nn.Flatten())
        self.fc = nn.Sequential(nn.Linear(56 * 12, 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, 1), nn.Tanh())

    def forward(self, x):
        return self.fc(self.conv((x - 110) / 60)).squeeze(1)


def main():
    torch.manual_seed(19)
    with tempfile.TemporaryDirectory(prefix="trails_") as d:
        record(Path(d))
        loader = DataLoader(Drives(Path(d)), batch_size=32, shuffle=True, drop_last=True,
                            num_workers=2, persistent_workers=True, prefetch_factor=4)
        net = Driver().to(memory_format=torch.channels_last)
        opt = torch.optim.Adam(net.parameters(), lr=1e-3)
        for epoch in range(4):
            t0, sq = time.time(), 0.0
            for image, angle in loader:
                pred = net(image.to(memory_format=torch.channels_last))
                loss = nn.functional.mse_loss(pred, angle.float())
                opt.zero_grad()
                loss.backward()
                opt.step()
                sq += loss.item()
            print(f"epoch {epoch}  rmse {(sq / len(loader)) ** 0.5:.4f}  {time.time() - t0:.1f}s", flush=True)


if __name__ == "__main__":
    main()
