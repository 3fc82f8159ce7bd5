import argparse
import gc
import random

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset, Sampler


class Phrases(Dataset):
    def __init__(self, n, vocab=400):
        rnd = random.Random(5)
        self.source = [[rnd.randrange(1, vocab) for _ in range(rnd.randint(4, 24))] for _ in range(n)]
        self.target = [[(w * 7) % vocab or 1 for w in reversed(words)] for words in self.source]

    def __len__(self):
        return len(self.source)

    def __getitem__(self, i):
        return torch.tensor(self.source[i]), torch.tensor(self.target[i])


class SimilarLength(Sampler):
    """Batches of phrases whose lengths are near that of a random first one."""

    def __init__(self, lengths, batch_size):
        self.lengths, self.batch_size = lengths, batch_size

    def __len__(self):
        return len(self.lengths) // self.batch_size

    def __iter__(self):
        left = list(range(len(self.lengths)))
        while len(left) >= self.batch_size:
            first = self.lengths[random.choice(left)]
            near = sorted(left, key=lambda i: abs(self.lengths[i] - first) + random.random())[: self.batch_size]  # <<
            left = [i for i in left if i not in near]  # <<
            yield near


def pad(pairs):
    source, target = zip(*pairs)
    return pad_sequence(source, True), pad_sequence(target, True)


class Translator(nn.Module):
    def __init__(self, vocab=400, width=48):
        super().__init__()
        self.embed = nn.Embedding(vocab, width, padding_idx=0)
        self.encode = nn.GRU(width, width, batch_first=True)
        self.decode = nn.GRU(width, width, batch_first=True)
        self.out = nn.Linear(width, vocab)

    def forward(self, source, target):
        _, state = self.encode(self.embed(source))
        shifted = nn.functional.pad(target, (1, -1))
        return self.out(self.decode(self.embed(shifted), state)[0])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=200)
    args = parser.parse_args()
    random.seed(1)
    torch.manual_seed(1)
    data = Phrases(9600)
    sampler = SimilarLength([len(words) for words in data.source], 32)
    loader = DataLoader(data, batch_sampler=sampler, collate_fn=pad)  # <<
    model = Translator()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(args.epochs):
        for step, (source, target) in enumerate(loader):
            logits = model(source, target)
            loss = nn.functional.cross_entropy(logits.transpose(1, 2), target, ignore_index=0)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 40 == 39:
                gc.collect()  # <<2
        print(f"epoch {epoch} loss {loss.item():.4f}")


main()
