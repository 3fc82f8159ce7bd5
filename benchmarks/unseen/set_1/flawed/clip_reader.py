import io
import os
import struct
import sys
import tempfile
import time

import numpy as np
import torch
from PIL import Image
from torch import nn

# Motion classification from short clips. The videos lie in a simple motion-JPEG
# container: for every frame four bytes of length and then the JPEG itself.

SIZE = 64
FRAMES = 128
CLIP = 8
DIRECTIONS = [(1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (-1, -1)]


def write_video(path, direction, rng):
    backdrop = rng.integers(0, 90, (SIZE, SIZE, 3), dtype=np.uint8)
    y, x = rng.integers(0, SIZE, 2)
    colour = rng.integers(150, 255, 3)
    with open(path, "wb") as fh:
        for _ in range(FRAMES):
            frame = backdrop.copy()
            rows = np.arange(y, y + 12) % SIZE
            cols = np.arange(x, x + 12) % SIZE
            frame[np.ix_(rows, cols)] = colour
            y, x = (y + 2 * direction[0]) % SIZE, (x + 2 * direction[1]) % SIZE
            buf = io.BytesIO()
            Image.fromarray(frame).save(buf, "JPEG", quality=80)
            data = buf.getvalue()
            fh.write(struct.pack("<I", len(data)))
            fh.write(data)


class VideoReader:
    """Reads the frames of one video in order, like cv2.VideoCapture."""

    def __init__(self, path):
        self.fh = open(path, "rb")
        self.position = 0

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.fh.close()

    def _next_packet(self):
        (n,) = struct.unpack("<I", self.fh.read(4))
        self.position += 1
        return self.fh.read(n)

    def read(self):
        packet = self._next_packet()
        return np.asarray(Image.open(io.BytesIO(packet)).convert("RGB"))  # <<

    def seek(self, index):
        if index < self.position:
            self.fh.seek(0)
            self.position = 0
        while self.position < index:
            self.read()  # <<


def read_clip(path, start, length):
    with VideoReader(path) as video:
        video.seek(start)  # <<
        return np.stack([video.read() for _ in range(length)])


def clip_batches(videos, batch, steps, rng):
    """Endless shuffling is not needed here: `steps` batches of random clips."""
    for _ in range(steps):
        chosen = rng.integers(0, len(videos), batch)
        clips, labels = [], []
        for i in chosen:
            path, label = videos[i]
            start = int(rng.integers(0, FRAMES - CLIP))
            clips.append(read_clip(path, start, CLIP))  # <<
            labels.append(label)
        x = torch.from_numpy(np.stack(clips)).permute(0, 4, 1, 2, 3)
        yield x.float().div_(127.5).sub_(1), torch.tensor(labels)


class Conv2Plus1d(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.space = nn.Conv3d(cin, cout, (1, 3, 3), stride=(1, stride, stride), padding=(0, 1, 1), bias=False)
        self.bn1 = nn.BatchNorm3d(cout)
        self.time = nn.Conv3d(cout, cout, (3, 1, 1), padding=(1, 0, 0), bias=False)
        self.bn2 = nn.BatchNorm3d(cout)

    def forward(self, x):
        x = torch.relu(self.bn1(self.space(x)))
        return torch.relu(self.bn2(self.time(x)))


class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.body = nn.Sequential(
            Conv2Plus1d(3, 12, 2),
            Conv2Plus1d(12, 24, 2),
            Conv2Plus1d(24, 40, 2),
        )
        self.fc = nn.Linear(40, classes)

    def forward(self, x):
        return self.fc(self.body(x).mean((2, 3, 4)))


def main(epochs):
    torch.manual_seed(1)
    rng = np.random.default_rng(1)
    folder = tempfile.mkdtemp(prefix="clips_")
    videos = []
    for n in range(36):
        label = n % len(DIRECTIONS)
        path = os.path.join(folder, f"{n:03d}.mjpg")
        write_video(path, DIRECTIONS[label], rng)
        videos.append((path, label))

    net = Net(len(DIRECTIONS))
    opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    loss_fn = nn.CrossEntropyLoss()
    steps = 36
    for epoch in range(epochs):
        t = time.time()
        losses = torch.zeros(steps)
        for k, (x, y) in enumerate(clip_batches(videos, 6, steps, rng)):
            loss = loss_fn(net(x), y)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            losses[k] = loss.detach()
        print("epoch", epoch, "loss %.3f" % losses.mean().item(), "%.2f s" % (time.time() - t), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[sys.argv.index("--epochs") + 1]) if "--epochs" in sys.argv else 15)
