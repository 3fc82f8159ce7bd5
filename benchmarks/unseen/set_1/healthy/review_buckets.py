"""Sentiment of reviews of very different length: batches of like length, transformer encoder."""
import argparse
import random
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, Sampler

VOCAB = 2500


class Reviews(Dataset):
    """Reviews are turned into id tensors once."""

    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        rng = random.Random(seed)
        self.lengths = [min(120, max(8, int(rng.lognormvariate(3.5, 0.6)))) for _ in range(n)]
        self.labels = torch.randint(0, 2, (n,), generator=g)
        self.ids = []
        for length, label in zip(self.lengths, self.labels.tolist()):
            words = torch.randint(100, VOCAB, (length,), generator=g)
            tone = torch.rand(length, generator=g) < 0.12
            words[tone] = torch.randint(1 + 40 * label, 60 + 40 * label, (int(tone.sum()),), generator=g)
            self.ids.append(words)

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return self.ids[i], self.labels[i]


class LengthBuckets(Sampler):
    """Shuffles, sorts within pools, cuts into batches, shuffles the batches."""

    def __init__(self, lengths, batch_size, pool=16, seed=0):
        self.lengths, self.batch_size, self.pool = lengths, batch_size, pool
        self.rng = random.Random(seed)

    def __len__(self):
        return len(self.lengths) // self.batch_size

    def __iter__(self):
        order = list(range(len(self.lengths)))
        self.rng.shuffle(order)
        step = self.batch_size * self.pool
        batches = []
        for a in range(0, len(order), step):
            pool = sorted(order[a:a + step], key=self.lengths.__getitem__)
            batches += [pool[b:b + self.batch_size] for b in range(0, len(pool), self.batch_size)]
        self.rng.shuffle(batches)
        yield from batches[: len(self)]


def pad_batch(samples):
    ids, labels = zip(*samples)
    return nn.utils.rnn.pad_sequence(ids, batch_first=True), torch.stack(labels)


class Classifier(nn.Module):
    def __init__(self, dim=128, heads=4, depth=2):
        super().__init__()
        self.words = nn.Embedding(VOCAB, dim, padding_idx=0)
        self.places = nn.Parameter(torch.randn(128, dim) * 0.02)
        layer = nn.TransformerEncoderLayer(dim, heads, 4 * dim, dropout=0.0,
                                           batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.Linear(dim, 2)

    def forward(self, ids):
        pad = ids == 0
        x = self.words(ids) + self.places[: ids.shape[1]]
        x = self.encoder(x, src_key_padding_mask=pad)
        keep = (~pad).unsqueeze(-1).to(x.dtype)
        return self.head((x * keep).sum(1) / keep.sum(1))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=12)
    ap.add_argument("--log-every", type=int, default=25)
    args = ap.parse_args()
    torch.manual_seed(0)
    data = Reviews(1600, seed=0)
    loader = DataLoader(data, batch_sampler=LengthBuckets(data.lengths, 16), collate_fn=pad_batch)
    model = Classifier()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    step = 0
    for epoch in range(args.epochs):
        t0 = time.time()
        for ids, labels in loader:
            loss = F.cross_entropy(model(ids), labels)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            step += 1
            if step % args.log_every == 0:
                shape = "x".join(map(str, ids.shape))
                last = f"step {step} batch {shape} loss {loss.item():.4f}"
        print(f"epoch {epoch} {last} {time.time() - t0:.2f}s")


if __name__ == "__main__":
    main()
