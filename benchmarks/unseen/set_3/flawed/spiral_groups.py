# DeepCluster on galaxy stamps: cluster the features, train on the pseudo labels, repeat.
import math
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

K = 24
SIDE = 24
STAMPS = 5000


def galaxies(n, seed):
    g = torch.Generator().manual_seed(seed)
    ax = torch.linspace(-1, 1, SIDE)
    yy, xx = torch.meshgrid(ax, ax, indexing="ij")
    r, phi = (xx ** 2 + yy ** 2).sqrt() + 1e-3, torch.atan2(yy, xx)
    arms = torch.randint(0, 5, (n, 1, 1), generator=g).float()
    wind = torch.rand(n, 1, 1, generator=g) * 6
    scale = 0.2 + 0.3 * torch.rand(n, 1, 1, generator=g)
    turn = torch.rand(n, 1, 1, generator=g) * 2 * math.pi
    img = torch.exp(-r / scale) * (1 + 0.8 * torch.cos(arms * (phi + wind * r) + turn))
    return (img + 0.05 * torch.randn(n, SIDE, SIDE, generator=g)).unsqueeze(1), arms.flatten().long()


class StampNet(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(True), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(True), nn.MaxPool2d(2),
            nn.Conv2d(32, 48, 3, padding=1), nn.BatchNorm2d(48), nn.ReLU(True), nn.AdaptiveAvgPool2d(2), nn.Flatten(),
        )
        self.embed = nn.Linear(192, dim)
        self.top = nn.Linear(dim, K)

    def features(self, x):
        return self.embed(self.conv(x.contiguous(memory_format=torch.channels_last)))

    def forward(self, x):
        return self.top(F.relu(self.features(x)))


def kmeans(feats, k, iters=8):
    centroids = feats[torch.randperm(len(feats))[:k]].clone()
    assign = torch.zeros(len(feats), dtype=torch.long)
    for _ in range(iters):
        for i in range(len(feats)):  # <<
            distance = ((centroids - feats[i]) ** 2).sum(1)  # <<
            assign[i] = distance.argmin()  # <<
        for c in range(k):
            members = feats[assign == c]
            if len(members):
                centroids[c] = members.mean(0)
    return assign


def purity(assign, truth):
    table = torch.zeros(K, 5).index_put_((assign, truth), torch.ones(len(assign)), accumulate=True)
    return table.max(1).values.sum().item() / len(assign)


def main():
    torch.manual_seed(0)
    images, arms = galaxies(STAMPS, 0)
    net = StampNet().to(memory_format=torch.channels_last)
    for epoch in range(10):
        start = time.time()
        net.eval()
        with torch.no_grad():
            feats = F.normalize(torch.cat([net.features(c) for c in images.split(500)]), dim=1)
        pseudo = kmeans(feats, K)  # <<
        net.top.reset_parameters()
        opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-5)
        net.train()
        total = 0.0
        for sel in torch.randperm(STAMPS).split(64):
            x = images[sel]
            if torch.rand(()) < 0.5:
                x = x.flip(-1)
            loss = F.cross_entropy(net(x), pseudo[sel])
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item() * len(sel)
        print(f"epoch {epoch} loss {total / STAMPS:.3f} purity {purity(pseudo, arms):.3f} [{time.time() - start:.1f}s]", flush=True)


if __name__ == "__main__":
    main()
