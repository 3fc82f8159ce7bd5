import random

import torch
from torch.utils.data import DataLoader, Dataset


class Tokenizer:
    """Greedy longest-match pieces over a synthetic alphabet."""

    def __init__(self, size=60000):
        rnd = random.Random(0)
        letters = "abcdefghijklmnop"
        self.pieces = {}
        while len(self.pieces) < size:
            piece = "".join(rnd.choices(letters, k=rnd.randint(1, 6)))
            self.pieces.setdefault(piece, len(self.pieces) % 4000)

    def encode(self, text):
        ids, at = [], 0
        while at < len(text):
            for width in range(6, 0, -1):
                piece = text[at : at + width]
                if piece in self.pieces:
                    ids.append(self.pieces[piece])
                    break
            else:
                ids.append(0)
            at += width
        return ids


class Phrases(Dataset):
    def __init__(self, n):
        rnd = random.Random(1)
        self.rows = []
        for _ in range(n):
            label = rnd.randrange(8)
            text = "".join(rnd.choices("abcdefghijklmnop", weights=[1 + 3 * (k % 8 == label) for k in range(16)], k=60))
            self.rows.append((text, label))
        self.tokenizer = None

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        if self.tokenizer is None:
            self.tokenizer = Tokenizer()
        text, label = self.rows[i]
        ids = self.tokenizer.encode(text)
        return torch.tensor((ids + [0] * 40)[:40]), label


def loaders(batch_size=16):
    return DataLoader(Phrases(480), batch_size, shuffle=True, num_workers=2)  # <<
