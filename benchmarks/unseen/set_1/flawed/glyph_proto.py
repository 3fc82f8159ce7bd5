"""Prototypical networks: few-shot classification of random stroke glyphs."""
import argparse
import random
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from PIL import Image, ImageDraw


def draw_alphabet(classes, per_class, seed):
    """(classes, per_class, 1, 28, 28): each class is a few strokes, each example a jittered drawing of it."""
    rng = random.Random(seed)
    pages = []
    for _ in range(classes):
        strokes = [[(rng.uniform(4, 24), rng.uniform(4, 24)) for _ in range(rng.randint(2, 4))] for _ in range(3)]
        rows = []
        for _ in range(per_class):
            image = Image.new("L", (28, 28))
            pen = ImageDraw.Draw(image)
            dx, dy, s = rng.uniform(-2, 2), rng.uniform(-2, 2), rng.uniform(0.85, 1.1)
            for stroke in strokes:
                pts = [(s * x + dx + rng.gauss(0, 0.7), s * y + dy + rng.gauss(0, 0.7)) for x, y in stroke]
                pen.line(pts, fill=255, width=2)
            rows.append(np.asarray(image, dtype=np.float32) / 255)
        pages.append(np.stack(rows))
    return torch.from_numpy(np.stack(pages)).unsqueeze(2)


def conv_block(cin, cout):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, padding=1), nn.BatchNorm2d(cout), nn.ReLU(), nn.MaxPool2d(2))


class ProtoNet(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.encoder = nn.Sequential(conv_block(1, width), conv_block(width, width), conv_block(width, width),
                                     nn.Flatten(), nn.Linear(width * 9, 64))

    def embed(self, images):
        return self.encoder(images)

    @staticmethod
    def classify(support, query):
        """support (way, shot, d), query (n, d) -> logits (n, way)"""
        return -torch.cdist(query, support.mean(1)).square()


class Episodes:
    def __init__(self, classes, per_class, way, shot, queries, seed):
        self.rng = np.random.default_rng(seed)
        self.classes, self.per_class = classes, per_class
        self.way, self.shot, self.queries = way, shot, queries
        self.labels = torch.arange(way).repeat_interleave(queries)

    def draw(self):
        cls = torch.from_numpy(self.rng.choice(self.classes, self.way, replace=False))
        pick = torch.from_numpy(np.stack([self.rng.choice(self.per_class, self.shot + self.queries, replace=False)
                                          for _ in range(self.way)]))
        return cls[:, None], pick


def train_epoch(model, opt, images, episodes, count):
    model.train()
    total = torch.zeros(())
    for _ in range(count):
        cls, pick = episodes.draw()
        x = images[cls, pick]
        z = model.embed(x.flatten(0, 1)).view(*x.shape[:2], -1)
        logits = model.classify(z[:, :episodes.shot], z[:, episodes.shot:].flatten(0, 1))
        loss = F.cross_entropy(logits, episodes.labels)
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.detach()
    return total.item() / count


@torch.no_grad()
def evaluate(model, images, episodes, count):
    model.eval()
    correct = 0
    for _ in range(count):
        cls, pick = episodes.draw()
        x = images[cls, pick]
        z = model.embed(x.flatten(0, 1)).view(*x.shape[:2], -1)  # <<
        logits = model.classify(z[:, :episodes.shot], z[:, episodes.shot:].flatten(0, 1))
        correct += (logits.argmax(1) == episodes.labels).sum()
    return correct.item() / (count * len(episodes.labels))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=16)
    args = ap.parse_args()
    torch.manual_seed(4)
    train_images = draw_alphabet(60, 20, seed=1)
    valid_images = draw_alphabet(20, 20, seed=2)
    model = ProtoNet()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    train = Episodes(60, 20, way=5, shot=5, queries=5, seed=3)
    for epoch in range(args.epochs):
        t = time.perf_counter()
        loss = train_epoch(model, opt, train_images, train, 50)
        valid = Episodes(20, 20, way=5, shot=5, queries=15, seed=99)
        accuracy = evaluate(model, valid_images, valid, 80)  # <<
        print(f"epoch {epoch}  loss {loss:.4f}  5-way accuracy {accuracy:.3f}  {time.perf_counter() - t:.2f}s")


if __name__ == "__main__":
    main()
