"""
Next-song model for the radio feature. Session = last 20 song ids -> score for the next one
against sampled negatives. Catalogue is big, so the table dominates the model size.
"""
import numpy as np
import torch
from torch import nn

CATALOGUE = 250_000
DIM = 32
SESSION = 20
NEG = 30
BATCH = 128
STEPS = 700


class SessionStream:
    """Zipf-ish sessions: listeners stay within a 'scene' of neighbouring ids."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def __iter__(self):
        while True:
            scene = (self.rng.pareto(1.1, (BATCH, 1)) * 2000).astype(np.int64) % (CATALOGUE - 500)
            ids = scene + self.rng.integers(0, 300, (BATCH, SESSION + 1))
            negs = self.rng.integers(0, CATALOGUE, (BATCH, NEG))
            yield torch.from_numpy(ids[:, :-1]), torch.from_numpy(ids[:, -1:]), torch.from_numpy(negs)


class RadioModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.songs = nn.Embedding(CATALOGUE, DIM)  # <<
        nn.init.normal_(self.songs.weight, std=0.1)
        self.mix = nn.Sequential(nn.Linear(DIM, 64), nn.ReLU(), nn.Linear(64, DIM))

    def forward(self, history, candidates):
        h = self.songs(history).mean(dim=1)  # <<
        h = h + self.mix(h)
        c = self.songs(candidates)  # <<
        return torch.einsum("bd,bkd->bk", h, c)


def main():
    torch.manual_seed(4)
    model = RadioModel()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    criterion = nn.CrossEntropyLoss()
    stream = iter(SessionStream(seed=4))
    target = torch.zeros(BATCH, dtype=torch.long)

    running_loss, running_rank = 0.0, 0.0
    for step in range(1, STEPS + 1):
        history, pos, neg = next(stream)
        scores = model(history, torch.cat([pos, neg], dim=1))
        loss = criterion(scores, target)

        optimizer.zero_grad()
        loss.backward()  # <<
        optimizer.step()  # <<

        running_loss += loss.item()
        with torch.no_grad():
            running_rank += (scores[:, 1:] > scores[:, :1]).sum(1).float().mean().item()
        if step % 100 == 0:
            print(f"step {step}: loss {running_loss / 100:.4f}  mean rank {running_rank / 100:.2f} of {NEG}")
            running_loss, running_rank = 0.0, 0.0


main()
