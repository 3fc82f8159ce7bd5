# Speaker embeddings with a batch-hard triplet loss. P speakers x K utterances per batch.
# Utterances are short log-mel like maps drawn from a per-speaker basis.
import random
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Sampler, TensorDataset

EPOCHS = 23
if "--epochs" in sys.argv:
    EPOCHS = int(sys.argv[sys.argv.index("--epochs") + 1])

SPEAKERS, UTTERANCES = 400, 30000
MELS, FRAMES = 20, 24
P, K = 16, 4
BATCHES = 90

torch.manual_seed(11)


def synth():
    speaker = torch.randint(SPEAKERS, (UTTERANCES,))
    base = torch.randn(SPEAKERS, MELS, 3)
    envelope = torch.randn(UTTERANCES, 3, FRAMES).cumsum(-1) * 0.3 + 1.0
    data = torch.bmm(base[speaker], envelope)
    data += 0.8 * torch.randn(UTTERANCES, MELS, FRAMES)
    return data, speaker


class PKBatches(Sampler):
    """Yields lists of indices: K utterances of each of P random speakers."""

    def __init__(self, labels, p, k, batches, seed=0):
        self.labels = labels
        self.speakers = sorted(set(labels))
        self.p, self.k, self.batches = p, k, batches
        self.rng = random.Random(seed)

    def __len__(self):
        return self.batches

    def candidates(self, speaker):
        return [i for i, label in enumerate(self.labels) if label == speaker]  # <<

    def draw(self):
        chosen = []
        for speaker in self.rng.sample(self.speakers, self.p):
            pool = self.candidates(speaker)  # <<
            if len(pool) >= self.k:
                chosen.extend(self.rng.sample(pool, self.k))
            else:
                chosen.extend(self.rng.choices(pool, k=self.k))
        return chosen

    def __iter__(self):
        for _ in range(self.batches):
            yield self.draw()  # <<


class Embedder(nn.Module):
    def __init__(self, width=64, out=64):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv1d(MELS, width, 5, padding=2), nn.BatchNorm1d(width), nn.ReLU(),
            nn.Conv1d(width, width, 3, padding=1), nn.BatchNorm1d(width), nn.ReLU(),
            nn.Conv1d(width, 2 * width, 3, stride=2, padding=1), nn.BatchNorm1d(2 * width), nn.ReLU(),
            nn.Conv1d(2 * width, 2 * width, 3, padding=1), nn.BatchNorm1d(2 * width), nn.ReLU(),
        )
        self.proj = nn.Linear(4 * width, out)

    def forward(self, x):
        h = self.net(x)
        h = torch.cat([h.mean(-1), h.amax(-1)], dim=1)
        return F.normalize(self.proj(h), dim=1)


def batch_hard(z, y, margin=0.25):
    dist = (2 - 2 * z @ z.T).clamp_min(1e-6).sqrt()
    same = y[:, None] == y[None, :]
    hardest_pos = dist.masked_fill(~same, 0).amax(1)
    hardest_neg = dist.masked_fill(same, 9).amin(1)
    return F.relu(hardest_pos - hardest_neg + margin).mean()


def batches_of(loader):
    for n, (x, y) in enumerate(loader):
        gain = 1 + 0.02 * ((n % 5) - 2)
        yield n, x * gain, y


features, speaker = synth()
dataset = TensorDataset(features, speaker)
loader = DataLoader(dataset, batch_sampler=PKBatches(speaker.tolist(), P, K, BATCHES, seed=4))
model = Embedder()
opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)

for epoch in range(EPOCHS):
    began = time.time()
    running = 0.0
    for n, x, y in batches_of(loader):
        loss = batch_hard(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        running = running + loss.detach()
    print("epoch", epoch, "triplet %.4f" % (running / BATCHES).item(), "%.2fs" % (time.time() - began))
