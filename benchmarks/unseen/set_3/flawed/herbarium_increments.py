"""Class-incremental learning of herbarium sheets in the manner of iCaRL: rehearsal from exemplar
sets and classification by the nearest mean of exemplars."""
import time

import torch
import torch.nn.functional as F
from torch import nn

CLASSES, PER_TASK, EXEMPLARS = 12, 4, 30


def sheets(n_per_class, seed):
    proto = torch.randn(CLASSES, 3, 6, 6, generator=torch.Generator().manual_seed(42))
    g = torch.Generator().manual_seed(seed)
    y = torch.arange(CLASSES).repeat_interleave(n_per_class)
    x = F.interpolate(proto[y] + 0.6 * torch.randn(len(y), 3, 6, 6, generator=g), size=28, mode="bilinear", align_corners=False)
    return x + 0.4 * torch.randn(len(y), 3, 28, 28, generator=g), y


class Learner(nn.Module):
    def __init__(self):
        super().__init__()
        def unit(i, o, s):
            return nn.Sequential(nn.Conv2d(i, o, 3, s, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU(True))
        self.extractor = nn.Sequential(unit(3, 24, 1), unit(24, 32, 2), unit(32, 48, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.fc = nn.Linear(48, CLASSES)
        self.exemplars = {}

    def features(self, x):
        return F.normalize(self.extractor(x.contiguous(memory_format=torch.channels_last)), dim=1)

    def forward(self, x):
        return self.fc(self.extractor(x.contiguous(memory_format=torch.channels_last)))

    def class_means(self):
        means = []
        for c in sorted(self.exemplars):
            means.append(F.normalize(self.features(self.exemplars[c]).mean(0), dim=0))
        return torch.stack(means)

    @torch.no_grad()
    def classify(self, x):
        means = self.class_means()  # <<
        return torch.cdist(self.features(x), means).argmin(1)

    @torch.no_grad()
    def herd(self, x, c):
        f = self.features(x)
        target, chosen, total = f.mean(0), [], torch.zeros(f.size(1))
        for k in range(1, EXEMPLARS + 1):
            gap = ((total + f) / k - target).norm(dim=1)
            gap[chosen] = float("inf")
            i = int(gap.argmin())
            chosen.append(i)
            total = total + f[i]
        self.exemplars[c] = x[chosen]


@torch.no_grad()
def accuracy(model, x, y):
    model.eval()
    right = 0
    for xb, yb in zip(x.split(32), y.split(32)):
        right += (model.classify(xb) == yb).sum().item()  # <<
    return right / len(y)


def main():
    torch.manual_seed(1)
    x, y = sheets(320, 1)
    xt, yt = sheets(80, 2)
    model = Learner().to(memory_format=torch.channels_last)
    for task in range(CLASSES // PER_TASK):
        new = list(range(task * PER_TASK, (task + 1) * PER_TASK))
        mine = torch.isin(y, torch.tensor(new))
        tx, ty = x[mine], y[mine]
        for c, ex in model.exemplars.items():
            tx, ty = torch.cat([tx, ex]), torch.cat([ty, torch.full((len(ex),), c)])
        model.eval()
        for c in new:
            model.herd(x[y == c], c)
        known = yt < new[-1] + 1
        opt = torch.optim.Adam(model.parameters(), lr=1e-3)
        for epoch in range(8):
            model.train()
            t0 = time.time()
            for sel in torch.randperm(len(tx)).split(32):
                loss = F.cross_entropy(model(tx[sel]), ty[sel])
                opt.zero_grad()
                loss.backward()
                opt.step()
            acc = accuracy(model, xt[known], yt[known])
            print(f"task {task} epoch {epoch} loss {loss.item():.3f} nme acc {acc:.3f} ({time.time() - t0:.1f}s)", flush=True)
        model.eval()
        for c in new:
            model.herd(x[y == c], c)


if __name__ == "__main__":
    main()
