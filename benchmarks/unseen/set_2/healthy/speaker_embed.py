"""Speaker embeddings with the GE2E loss: batches of P speakers x K utterances, random two-second crops."""
import argparse
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class Utterances:
    """Feature matrices of different lengths (60 to 200 frames), several per speaker, as float16."""

    def __init__(self, n_speakers, per_speaker, n_feat=40, seed=0):
        rng = np.random.default_rng(seed)
        self.feats = []
        for _ in range(n_speakers):
            tilt = rng.normal(0, 0.5, n_feat)
            vowels = np.random.default_rng(0).normal(0, 1, (12, n_feat)) + rng.normal(0, 0.35, (12, n_feat))
            own = []
            for _ in range(per_speaker):
                n = int(rng.integers(60, 200))
                seq = np.repeat(rng.integers(0, 12, n // 5 + 1), 5)[:n]
                own.append((vowels[seq] + tilt + rng.normal(0, 0.8, (n, n_feat))).astype(np.float16))
            self.feats.append(own)

    def batch(self, rng, speakers, k, crop):
        out = np.empty((len(speakers), k, crop, self.feats[0][0].shape[1]), np.float32)
        for a, s in enumerate(speakers):
            for b, u in enumerate(rng.choice(len(self.feats[s]), k, replace=False)):
                x = self.feats[s][u]
                at = rng.integers(0, len(x) - crop + 1)
                out[a, b] = x[at:at + crop]
        return torch.from_numpy(out)


class TDNN(nn.Module):
    def __init__(self, n_feat=40, width=128, emb=96):
        super().__init__()
        self.frame = nn.Sequential(
            nn.Conv1d(n_feat, width, 5), nn.ReLU(), nn.BatchNorm1d(width),
            nn.Conv1d(width, width, 3, dilation=2), nn.ReLU(), nn.BatchNorm1d(width),
            nn.Conv1d(width, width, 3, dilation=3), nn.ReLU(), nn.BatchNorm1d(width),
            nn.Conv1d(width, 2 * width, 1), nn.ReLU())
        self.emb = nn.Linear(4 * width, emb)

    def forward(self, x):
        h = self.frame(x.transpose(1, 2))
        var, mean = torch.var_mean(h, 2, correction=0)
        return F.normalize(self.emb(torch.cat([mean, (var + 1e-5).sqrt()], 1)), dim=1)


class GE2E(nn.Module):
    def __init__(self):
        super().__init__()
        self.w, self.b = nn.Parameter(torch.tensor(10.0)), nn.Parameter(torch.tensor(-5.0))

    def forward(self, e):
        p, k, d = e.shape
        total = e.sum(1)
        others = F.normalize((total[:, None] - e) / (k - 1), dim=2)
        sims = e.flatten(0, 1) @ F.normalize(total / k, dim=1).t()
        own = torch.arange(p).repeat_interleave(k)
        sims = sims.scatter(1, own[:, None], (e * others).sum(2).reshape(-1, 1))
        return F.cross_entropy(self.w.clamp(min=1e-6) * sims + self.b, own)


def equal_error_rate(net, data, crop):
    net.eval()
    rng = np.random.default_rng(123)
    with torch.inference_mode():
        e = torch.stack([net(data.batch(rng, [s], 6, crop)[0]) for s in range(len(data.feats))])
    s = (e.flatten(0, 1) @ e.flatten(0, 1).t())
    who = torch.arange(len(e)).repeat_interleave(6)
    upper = torch.ones_like(s, dtype=torch.bool).triu(1)
    score, same = s[upper], (who[:, None] == who[None])[upper]
    grid = torch.linspace(-0.2, 1, 200)
    far = torch.stack([(score[~same] > t).float().mean() for t in grid])
    frr = torch.stack([(score[same] <= t).float().mean() for t in grid])
    k = (far - frr).abs().argmin()
    net.train()
    return ((far[k] + frr[k]) / 2).item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--speakers", type=int, default=250)
    ap.add_argument("--utterances", type=int, default=16)
    ap.add_argument("-P", type=int, default=16)
    ap.add_argument("-K", type=int, default=5)
    ap.add_argument("--crop", type=int, default=60)
    ap.add_argument("--epochs", type=int, default=6)
    args = ap.parse_args()
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    train, test = Utterances(args.speakers, args.utterances, seed=1), Utterances(40, 8, seed=2)
    net, loss_fn = TDNN(), GE2E()
    params = [*net.parameters(), *loss_fn.parameters()]
    opt = torch.optim.Adam(params, lr=1e-3)
    n_batches = 5 * (args.speakers // args.P)
    for epoch in range(1, args.epochs + 1):
        t0, total = time.time(), 0.0
        for step in range(n_batches):
            who = rng.choice(args.speakers, args.P, replace=False)
            x = train.batch(rng, who, args.K, args.crop)
            e = net(x.flatten(0, 1)).view(args.P, args.K, -1)
            loss = loss_fn(e)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(params, 3.0)
            opt.step()
            total += loss.item()
        print(f"epoch {epoch} loss {total / n_batches:.4f} EER {100 * equal_error_rate(net, test, args.crop):.2f}% "
              f"{time.time() - t0:.1f}s", flush=True)


if __name__ == "__main__":
    main()
