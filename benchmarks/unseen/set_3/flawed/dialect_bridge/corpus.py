"""Toy parallel corpus: the dialect reverses clauses and shifts its vocabulary."""
import random

import torch
from torch.nn.utils.rnn import pad_sequence

PAD, BOS, EOS = 0, 1, 2
VOCAB = 600


def translate(src):
    out = []
    for i in range(0, len(src), 3):
        out.extend(reversed(src[i:i + 3]))
    return [3 + (w * 7 + 5) % (VOCAB - 3) for w in out]


def make_pairs(n, seed):
    rng = random.Random(seed)
    pairs = []
    for _ in range(n):
        src = [3 + min(int(rng.expovariate(0.02)), VOCAB - 4) for _ in range(rng.randint(5, 16))]
        pairs.append((src, translate(src)))
    return pairs


def collate(pairs):
    src = pad_sequence([torch.tensor(s) for s, _ in pairs], batch_first=True)
    tgt = pad_sequence([torch.tensor([BOS] + t + [EOS]) for _, t in pairs], batch_first=True)
    lens = torch.tensor([len(s) for s, _ in pairs])
    return src, lens, tgt
