"""Online continual learning with reservoir replay on a stream of tide-pool camera crops."""
import random
import time
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Settings:
    tasks: int = 4
    classes_per_task: int = 3
    per_task: int = 1600
    batch: int = 32
    memory: int = 600
    lr: float = 0.03


class Reservoir:
    def __init__(self, size):
        self.size, self.seen = size, 0
        self.x = torch.empty(size, 3, 28, 28)
        self.y = torch.empty(size, dtype=torch.long)

    def add(self, xs, ys):
        for x, y in zip(xs, ys):
            if self.seen < self.size:
                slot = self.seen
            else:
                slot = random.randint(0, self.seen)
            if slot < self.size:
                self.x[slot] = x
                self.y[slot] = y
            self.seen += 1

    def draw(self, n):
        have = min(self.seen, self.size)
        pick = torch.randint(0, have, (n,))
        return self.x[pick], self.y[pick]


def crops(cfg, task, n, seed):
    proto = torch.randn(cfg.tasks * cfg.classes_per_task, 3, 5, 5, generator=torch.Generator().manual_seed(8))
    g = torch.Generator().manual_seed(100 * task + seed)
    y = torch.randint(0, cfg.classes_per_task, (n,), generator=g) + task * cfg.classes_per_task
    coarse = proto[y] + 0.7 * torch.randn(n, 3, 5, 5, generator=g)
    x = F.interpolate(coarse, size=28, mode="bilinear", align_corners=False)
    return x + 0.3 * torch.randn(n, 3, 28, 28, generator=g), y


def make_net(classes):
    def unit(i, o, stride):
        return [nn.Conv2d(i, o, 3, stride, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True)]
    return nn.Sequential(*unit(3, 32, 1), *unit(32, 64, 2), *unit(64, 64, 1), *unit(64, 96, 2),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(96, classes))


def nhwc(x):
    return x.contiguous(memory_format=torch.channels_last)


def main(cfg=Settings()):
    torch.manual_seed(0)
    random.seed(0)
    net = make_net(cfg.tasks * cfg.classes_per_task).to(memory_format=torch.channels_last)
    opt = torch.optim.SGD(net.parameters(), lr=cfg.lr)
    memory = Reservoir(cfg.memory)
    tests = [crops(cfg, t, 90, 1) for t in range(cfg.tasks)]
    for task in range(cfg.tasks):
        x, y = crops(cfg, task, cfg.per_task, 0)
        t0 = time.time()
        for step, (xb, yb) in enumerate(zip(x.split(cfg.batch), y.split(cfg.batch))):
            for repeat in range(2):
                xt, yt = xb, yb
                if memory.seen:
                    mx, my = memory.draw(cfg.batch)
                    xt, yt = torch.cat([xb, mx]), torch.cat([yb, my])
                loss = F.cross_entropy(net(nhwc(xt)), yt)
                opt.zero_grad()
                loss.backward()
                opt.step()
            memory.add(xb, yb)
            if step % 10 == 0:
                print(f"task {task} step {step} loss {loss.item():.3f} memory {min(memory.seen, memory.size)}", flush=True)
        net.eval()
        with torch.no_grad():
            acc = [(net(nhwc(tx)).argmax(1) == ty).float().mean().item() for tx, ty in tests[:task + 1]]
        net.train()
        print(f"after task {task}: " + " ".join(f"{a:.2f}" for a in acc) + f" ({time.time() - t0:.1f}s)", flush=True)


if __name__ == "__main__":
    main()
