"""Linear-ish probe for hand gestures: image backbone from an earlier project, GRU head on top."""
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

GESTURES = ["swipe_left", "swipe_right", "push", "pull", "circle", "wave"]


class GestureClips(Dataset):
    def __init__(self, n, frames=8, side=40, train=True, seed=0):
        self.n, self.frames, self.side, self.train, self.seed = n, frames, side, train, seed
        g = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(0, len(GESTURES), (n,), generator=g)
        self.start = torch.rand(n, 2, generator=g) * 0.3 - 0.15
        ax = torch.linspace(-1, 1, side)
        self.grid = torch.meshgrid(ax, ax, indexing="ij")

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        y = int(self.labels[i])
        t = torch.linspace(-1, 1, self.frames)
        z = torch.zeros_like(t)
        cx = [-0.6 * t, 0.6 * t, z, z, 0.5 * (3.14 * t).cos(), 0.3 * (9 * t).sin()][y] + self.start[i, 0]
        cy = [z, z, z, z, 0.5 * (3.14 * t).sin(), z][y] + self.start[i, 1]
        size = [z + 0.2, z + 0.2, 0.25 + 0.15 * t, 0.25 - 0.15 * t, z + 0.2, z + 0.2][y]
        yy, xx = self.grid
        d = (yy - cy[:, None, None]) ** 2 + (xx - cx[:, None, None]) ** 2
        clip = torch.exp(-d / (size[:, None, None] ** 2))
        clip = clip.unsqueeze(1).repeat(1, 3, 1, 1)
        if self.train:
            clip = clip * (0.7 + 0.6 * torch.rand(1, 3, 1, 1)) + 0.15 * torch.randn_like(clip)
        return clip, y


class Backbone(nn.Module):
    out_dim = 96

    def __init__(self):
        super().__init__()
        def cbr(i, o, s):
            return [nn.Conv2d(i, o, 3, s, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True)]
        self.features = nn.Sequential(*cbr(3, 24, 1), *cbr(24, 32, 2), *cbr(32, 48, 1), *cbr(48, 64, 2), *cbr(64, 96, 2))

    def forward(self, x):
        return self.features(x).mean((2, 3))


def earlier_backbone():
    torch.manual_seed(100)
    net = Backbone().to(memory_format=torch.channels_last)
    net.eval()  # <<
    return net


class Head(nn.Module):
    def __init__(self, dim, classes):
        super().__init__()
        self.rnn = nn.GRU(dim, 64, batch_first=True)
        self.out = nn.Linear(64, classes)

    def forward(self, f):
        _, h = self.rnn(f)
        return self.out(h[-1])


def embed(backbone, clips):
    b, t = clips.shape[:2]
    frames = clips.flatten(0, 1).contiguous(memory_format=torch.channels_last)
    return backbone(frames).view(b, t, -1)  # <<


def main(epochs=3):
    backbone = earlier_backbone()
    torch.manual_seed(0)
    head = Head(Backbone.out_dim, len(GESTURES))
    optimizer = torch.optim.Adam(head.parameters(), lr=2e-3)
    criterion = nn.CrossEntropyLoss()
    train = DataLoader(GestureClips(800), batch_size=8, shuffle=True)
    test = DataLoader(GestureClips(96, train=False, seed=1), batch_size=16)
    for epoch in range(epochs):
        head.train()
        t0 = time.time()
        for it, (clips, y) in enumerate(train):
            logits = head(embed(backbone, clips))  # <<
            loss = criterion(logits, y)
            optimizer.zero_grad()
            loss.backward()  # <<
            optimizer.step()
            if it % 20 == 0:
                print(f"epoch {epoch} it {it:3d} loss {loss.item():.3f}", flush=True)
        head.eval()
        with torch.no_grad():
            right = sum((head(embed(backbone, c)).argmax(1) == y).sum().item() for c, y in test)
        print(f"epoch {epoch} accuracy {right / 96:.3f} {time.time() - t0:.1f}s", flush=True)


if __name__ == "__main__":
    main()
