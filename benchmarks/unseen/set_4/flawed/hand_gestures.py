import io
import math
import random

import numpy as np
import torch
import torch.nn as nn
from PIL import Image, ImageDraw
from torch.utils.data import Dataset, DataLoader

# TSN-style gesture recognition: a clip is cut into N_SEG segments, one random frame per segment
# goes through a small 2D net and the scores are averaged.

N_CLASSES = 6
CLIP_LEN = 32
N_SEG = 4
RES = 64


def jpeg(img):
    buf = io.BytesIO()
    img.save(buf, format="JPEG", quality=85)
    return buf.getvalue()


def record_clip(label, rnd):
    """One clip = list of JPEG byte strings, as our capture box stores them."""
    phase = rnd.uniform(0, 6.28)
    bg = tuple(rnd.randint(30, 90) for _ in range(3))
    frames = []
    for t in range(CLIP_LEN):
        img = Image.new("RGB", (RES, RES), bg)
        d = ImageDraw.Draw(img)
        a = 2 * math.pi * t / CLIP_LEN * (1 + label % 3) + phase
        cx = 32 + 16 * math.cos(a)
        cy = 32 + (16 * math.sin(a) if label < 3 else 0)
        d.ellipse((cx - 9, cy - 9, cx + 9, cy + 9), fill=(210, 160, 120 + 15 * label))
        for f in range(label % 4 + 1):
            d.line((cx, cy, cx + 18 * math.cos(f * 0.5), cy - 18 * math.sin(f * 0.5 + 0.3)), fill=(230, 180, 150), width=3)
        frames.append(jpeg(img))
    return frames


class GestureClips(Dataset):
    def __init__(self, n_clips, seed, training):
        rnd = random.Random(seed)
        self.labels = [rnd.randrange(N_CLASSES) for _ in range(n_clips)]
        self.clips = [record_clip(y, rnd) for y in self.labels]
        self.training = training

    def __len__(self):
        return len(self.clips)

    def load_clip(self, blobs):
        frames = [np.asarray(Image.open(io.BytesIO(b)).convert("RGB")) for b in blobs]  # <<
        return np.stack(frames)  # <<

    def pick_frames(self, n):
        seg = n // N_SEG
        if self.training:
            return [s * seg + random.randrange(seg) for s in range(N_SEG)]
        return [s * seg + seg // 2 for s in range(N_SEG)]

    def __getitem__(self, i):
        clip = self.load_clip(self.clips[i])  # <<
        clip = clip[self.pick_frames(len(clip))]
        x = torch.from_numpy(clip).permute(0, 3, 1, 2).float() / 127.5 - 1
        return x, self.labels[i]


class TSN(nn.Module):
    def __init__(self):
        super().__init__()
        def block(i, o):
            return nn.Sequential(nn.Conv2d(i, o, 3, stride=2, padding=1), nn.BatchNorm2d(o), nn.ReLU(inplace=True))
        self.net = nn.Sequential(block(3, 16), block(16, 32), block(32, 48), nn.AdaptiveAvgPool2d(2), nn.Flatten(),
                                 nn.Linear(48 * 4, N_CLASSES))

    def forward(self, clips):
        b, s = clips.shape[:2]
        scores = self.net(clips.flatten(0, 1))
        return scores.view(b, s, -1).mean(1)


def run():
    random.seed(1); np.random.seed(1); torch.manual_seed(1)
    train = GestureClips(160, seed=10, training=True)
    test = GestureClips(24, seed=20, training=False)
    train_loader = DataLoader(train, batch_size=8, shuffle=True)
    test_loader = DataLoader(test, batch_size=8)

    model = TSN()
    opt = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-4)
    epochs = 20
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, epochs)
    ce = nn.CrossEntropyLoss()

    for ep in range(epochs):
        model.train()
        total = 0
        for x, y in train_loader:
            loss = ce(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item()
        sched.step()
        if ep % 5 == 4:
            model.eval()
            with torch.no_grad():
                ok = sum((model(x).argmax(1) == y).sum().item() for x, y in test_loader)
            print(f"ep {ep + 1:02d}: loss {total / len(train_loader):.4f}, test acc {ok / len(test):.2f}")
        else:
            print(f"ep {ep + 1:02d}: loss {total / len(train_loader):.4f}")


if __name__ == "__main__":
    run()
