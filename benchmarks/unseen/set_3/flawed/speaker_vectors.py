"""Speaker classification on pooled utterance statistics (GE2E-like back end), with averaged weights for scoring."""
import argparse
import copy
import math
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


def utterances(n, speakers, dim, gen):
    voices = torch.randn(speakers, 2 * dim, generator=gen)
    who = torch.randint(speakers, (n,), generator=gen)
    channel = torch.randn(12, 2 * dim, generator=gen) * 0.8
    x = voices[who] + channel[torch.randint(12, (n,), generator=gen)]
    return x + 2.2 * torch.randn(n, 2 * dim, generator=gen), who


class Margin(nn.Module):
    """Additive-margin softmax."""

    def __init__(self, dim, speakers, scale=20.0, margin=0.2):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(speakers, dim) / math.sqrt(dim))
        self.scale, self.margin = scale, margin

    def forward(self, e, who=None):
        cos = F.linear(F.normalize(e), F.normalize(self.weight))
        if who is not None:
            cos = cos - self.margin * F.one_hot(who, cos.shape[1])
        return self.scale * cos


class SpeakerNet(nn.Module):
    def __init__(self, dim, width, embed, speakers):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(2 * dim, width), nn.BatchNorm1d(width), nn.ReLU(),
            nn.Linear(width, width), nn.BatchNorm1d(width), nn.ReLU(),
            nn.Linear(width, width), nn.BatchNorm1d(width), nn.ReLU(),
            nn.Linear(width, embed))
        self.margin = Margin(embed, speakers)

    def forward(self, x, who=None):
        return self.margin(self.layers(x), who)


class Averager:
    def __init__(self, model, decay):
        self.decay = decay
        self.model = copy.deepcopy(model).eval()

    def update(self, model):
        new = copy.deepcopy(model.state_dict())  # <<
        old = copy.deepcopy(self.model.state_dict())  # <<
        for key in new:  # <<
            if new[key].is_floating_point():
                new[key] = self.decay * old[key] + (1 - self.decay) * new[key]  # <<
        self.model.load_state_dict(new)  # <<


@torch.no_grad()
def accuracy(model, x, who):
    model.eval()
    return (model(x).argmax(1) == who).float().mean().item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--speakers", type=int, default=400)
    ap.add_argument("--utterances", type=int, default=8000)
    ap.add_argument("--batch", type=int, default=32)
    ap.add_argument("--width", type=int, default=1536)
    ap.add_argument("--epochs", type=int, default=2)
    ap.add_argument("--decay", type=float, default=0.99)
    a = ap.parse_args()
    torch.manual_seed(17)
    gen = torch.Generator().manual_seed(17)
    x, who = utterances(a.utterances + 1000, a.speakers, 256, gen)
    tx, tw, vx, vw = x[:a.utterances], who[:a.utterances], x[a.utterances:], who[a.utterances:]
    net = SpeakerNet(256, a.width, 256, a.speakers)
    print(f"{sum(p.numel() for p in net.parameters()) / 1e6:.1f} M weights")
    opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    avg = Averager(net, a.decay)
    for epoch in range(a.epochs):
        tic = time.time()
        net.train()
        order = torch.randperm(len(tx), generator=gen)
        for k, idx in enumerate(order.split(a.batch)):
            loss = F.cross_entropy(net(tx[idx], tw[idx]), tw[idx])
            opt.zero_grad()
            loss.backward()
            opt.step()
            avg.update(net)  # <<
            if k % 40 == 0:
                print(f"{epoch}:{k:4d} loss {loss.item():.3f}")
        print(f"epoch {epoch}: raw {accuracy(net, vx, vw):.3f} averaged {accuracy(avg.model, vx, vw):.3f} "
              f"({time.time() - tic:.1f} s)")


if __name__ == "__main__":
    main()
