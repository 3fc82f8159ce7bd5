"""Unit-to-speech: discrete speech units -> mel spectrogram.

Units (as a clustering of self-supervised features would give them) come from a
learned table, then a convolutional decoder with residual blocks makes 40 mel bands.
"""
import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

UNITS = 1000
BANDS = 40
FRAMES = 128


class TableLookup(torch.autograd.Function):
    """Row lookup whose gradient is averaged per unit, so that frequent units
    (silence, breath) do not run away from the others."""

    @staticmethod
    def forward(ctx, table, units):
        ctx.save_for_backward(units)
        ctx.rows = table.shape[0]
        return table[units]

    @staticmethod
    def backward(ctx, grad):
        (units,) = ctx.saved_tensors
        flat = units.reshape(-1)
        grad = grad.reshape(flat.shape[0], -1)
        out = grad.new_zeros(ctx.rows, grad.shape[1])
        for u in range(ctx.rows):  # <<
            hits = grad[flat == u]  # <<
            if len(hits):
                out[u] = hits.sum(0) / len(hits) ** 0.5  # <<
        return out, None


class UnitTable(nn.Module):
    def __init__(self, rows, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(rows, dim) * 0.3)

    def forward(self, units):
        return TableLookup.apply(self.weight, units)


class Residual(nn.Module):
    def __init__(self, dim, dilation):
        super().__init__()
        self.a = nn.Conv1d(dim, dim, 3, padding=dilation, dilation=dilation)
        self.b = nn.Conv1d(dim, dim, 1)

    def forward(self, x):
        return x + self.b(F.leaky_relu(self.a(F.leaky_relu(x, 0.1)), 0.1))


class UnitVocoder(nn.Module):
    def __init__(self, dim=80, speakers=20):
        super().__init__()
        self.table = UnitTable(UNITS, dim)
        self.speaker = nn.Embedding(speakers, dim)
        self.body = nn.Sequential(*[Residual(dim, 2 ** (i % 3)) for i in range(4)])
        self.mel = nn.Conv1d(dim, BANDS, 1)

    def forward(self, units, speaker):
        x = self.table(units) + self.speaker(speaker)[:, None]
        return self.mel(self.body(x.transpose(1, 2)))


class Corpus:
    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        prototypes = torch.randn(UNITS, BANDS, generator=g)
        changes = (torch.rand(n, FRAMES, generator=g) < 0.5).long().cumsum(1)
        spoken = torch.randint(0, UNITS, (n, FRAMES + 1), generator=g)
        self.units = spoken.gather(1, changes)
        self.speaker = torch.randint(0, 20, (n,), generator=g)
        tint = 0.3 * torch.randn(20, BANDS, generator=g)
        mel = prototypes[self.units] + tint[self.speaker][:, None]
        self.mel = mel.transpose(1, 2).contiguous()

    def shuffled(self, size, g):
        for rows in torch.randperm(len(self.units), generator=g).split(size):
            yield self.units[rows], self.speaker[rows], self.mel[rows]


class Trainer:
    def __init__(self, corpus, batch):
        self.corpus = corpus
        self.batch = batch
        self.model = UnitVocoder()
        self.opt = torch.optim.Adam(self.model.parameters(), lr=1e-3, betas=(0.8, 0.99))
        self.g = torch.Generator().manual_seed(99)

    def step(self, units, speaker, mel):
        self.opt.zero_grad(set_to_none=True)
        guess = self.model(units, speaker)
        loss = F.l1_loss(guess, mel) + 0.5 * F.mse_loss(guess, mel)
        loss.backward()  # <<
        self.opt.step()
        return loss.detach()

    def epoch(self):
        losses = [self.step(*b) for b in self.corpus.shuffled(self.batch, self.g)]
        return torch.stack(losses).mean().item()


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=18)
    args = ap.parse_args()
    torch.manual_seed(3)
    trainer = Trainer(Corpus(960, seed=3), batch=16)
    for e in range(args.epochs):
        t0 = time.time()
        value = trainer.epoch()
        print(f"epoch {e}: {value:.4f} in {time.time() - t0:.2f}s")
