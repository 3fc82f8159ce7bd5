"""Extractive question answering over short contract clauses.

[CLS] question [SEP] clause [SEP]  ->  start / end of the answer span.
"""
import argparse
import random
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

PAD, CLS, SEP = 0, 1, 2
VOCAB = 3000
MAX_LEN = 256


class ClauseQA(Dataset):
    """A question consists of cue words; the answer follows the cue in the clause."""

    def __init__(self, n, seed):
        rng = random.Random(seed)
        self.items = []
        for _ in range(n):
            cue = [rng.randint(10, 200) for _ in range(2)]
            question = cue + [rng.randint(200, 400) for _ in range(rng.randint(2, 6))]
            clause = [rng.randint(400, VOCAB - 1) for _ in range(rng.randint(18, 60))]
            at = rng.randint(0, len(clause) - 6)
            span = rng.randint(1, 4)
            clause[at:at + 2] = cue
            ids = [CLS] + question + [SEP] + clause + [SEP]
            first = 2 + len(question) + at + 2
            self.items.append((ids, first, min(first + span, len(ids) - 2)))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def collate(items):
    ids = torch.full((len(items), MAX_LEN), PAD)  # <<
    for row, (seq, _, _) in enumerate(items):
        seq = seq[:MAX_LEN]
        ids[row, :len(seq)] = torch.tensor(seq)
    start = torch.tensor([s for _, s, _ in items])
    end = torch.tensor([e for _, _, e in items])
    return ids, start, end


class SpanReader(nn.Module):
    def __init__(self, dim=96, heads=4, layers=2):
        super().__init__()
        self.tok = nn.Embedding(VOCAB, dim, padding_idx=PAD)
        self.pos = nn.Embedding(MAX_LEN, dim)
        layer = nn.TransformerEncoderLayer(dim, heads, 2 * dim, dropout=0.0, batch_first=True)
        self.enc = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.span = nn.Linear(dim, 2)

    def forward(self, ids):
        pad = ids == PAD
        h = self.tok(ids) + self.pos(torch.arange(ids.size(1)))
        h = self.enc(h, src_key_padding_mask=pad)
        return self.span(h).masked_fill(pad.unsqueeze(-1), -1e4).unbind(-1)


def exact_match(model, loader):
    model.eval()
    hit = n = 0
    with torch.no_grad():
        for ids, s, e in loader:
            ls, le = model(ids)
            hit += ((ls.argmax(1) == s) & (le.argmax(1) == e)).sum().item()
            n += len(s)
    model.train()
    return hit / n


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--batch-size", type=int, default=16)
    args = ap.parse_args()
    torch.manual_seed(0)
    train = DataLoader(ClauseQA(1600, 1), args.batch_size, shuffle=True, collate_fn=collate)
    dev = DataLoader(ClauseQA(160, 2), 32, collate_fn=collate)
    model = SpanReader()
    opt = torch.optim.AdamW(model.parameters(), lr=5e-4)
    for epoch in range(args.epochs):
        t0 = time.time()
        for step, (ids, s, e) in enumerate(train, 1):
            ls, le = model(ids)
            loss = 0.5 * (F.cross_entropy(ls, s) + F.cross_entropy(le, e))
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            if step % 20 == 0:
                print(f"epoch {epoch} {step}/{len(train)} loss {loss.item():.3f} {step / (time.time() - t0):.1f} it/s", flush=True)
        print(f"== epoch {epoch} exact match {exact_match(model, dev):.3f}", flush=True)


if __name__ == "__main__":
    main()
