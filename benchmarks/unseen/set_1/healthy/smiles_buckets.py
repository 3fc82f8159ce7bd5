"""Property regression from SMILES-like strings with a GRU; batches of similar length, so steps differ a lot."""
import argparse
import random
import time

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset, Sampler

VOCAB = {c: i + 1 for i, c in enumerate("CNOSFclBr()=#123[]+-@H")}


def random_smiles(rng, depth=0):
    out = []
    for _ in range(rng.randint(4, 14) if depth == 0 else rng.randint(1, 5)):
        out.append(rng.choice("CCCCNOcccSF"))
        roll = rng.random()
        if roll < 0.12:
            out.append(rng.choice("=#"))
        elif roll < 0.35 and depth < 3:
            out.append("(" + random_smiles(rng, depth + 1) + ")")
    return "".join(out)


class Strings(Dataset):
    def __init__(self, count, seed):
        rng = random.Random(seed)
        self.rows = []
        for _ in range(count):
            s = random_smiles(rng)
            y = 0.05 * len(s) + 0.3 * s.count("N") - 0.2 * s.count("=") - 0.1 * s.count("(") * (s.count("O") > 1)
            self.rows.append((torch.tensor([VOCAB[c] for c in s]), y + rng.gauss(0, 0.05)))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]

    def lengths(self):
        return [len(t) for t, _ in self.rows]


class LengthBuckets(Sampler):
    def __init__(self, lengths, batch, seed):
        order = sorted(range(len(lengths)), key=lengths.__getitem__)
        self.buckets = [order[i:i + batch] for i in range(0, len(order), batch)]
        self.rng = random.Random(seed)

    def __len__(self):
        return len(self.buckets)

    def __iter__(self):
        return iter(self.rng.sample(self.buckets, len(self.buckets)))


def collate(rows):
    tokens, y = zip(*rows)
    return pad_sequence(tokens, batch_first=True), torch.tensor(y), torch.tensor([len(t) for t in tokens])


class Regressor(nn.Module):
    def __init__(self, dim=48, hidden=128):
        super().__init__()
        self.embed = nn.Embedding(len(VOCAB) + 1, dim, padding_idx=0)
        self.gru = nn.GRU(dim, hidden, num_layers=2, batch_first=True)
        self.out = nn.Sequential(nn.Linear(2 * hidden, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, tokens, lengths):
        h, _ = self.gru(self.embed(tokens))
        mask = (tokens > 0).unsqueeze(-1)
        mean = (h * mask).sum(1) / lengths[:, None]
        peak = h.masked_fill(~mask, -1e4).amax(1)
        return self.out(torch.cat([mean, peak], 1)).squeeze(-1)


class Callback:
    def on_batch(self, loss, n): ...
    def on_epoch(self, epoch): ...


class Printer(Callback):
    def __init__(self):
        self.sum, self.n, self.clock = torch.zeros(()), 0, time.perf_counter()

    def on_batch(self, loss, n):
        self.sum += loss * n
        self.n += n

    def on_epoch(self, epoch):
        now = time.perf_counter()
        print(f"epoch {epoch}  mse {self.sum.item() / self.n:.4f}  {now - self.clock:.2f}s")
        self.sum.zero_()
        self.n, self.clock = 0, now


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=22)
    args = ap.parse_args()
    torch.manual_seed(8)
    data = Strings(2560, seed=9)
    loader = DataLoader(data, batch_sampler=LengthBuckets(data.lengths(), 64, seed=10), collate_fn=collate)
    model = Regressor()
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    callbacks = [Printer()]
    for epoch in range(args.epochs):
        for tokens, y, lengths in loader:
            loss = (model(tokens, lengths) - y).square().mean()
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            for c in callbacks:
                c.on_batch(loss.detach(), len(y))
        for c in callbacks:
            c.on_epoch(epoch)


if __name__ == "__main__":
    main()
