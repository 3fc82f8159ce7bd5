"""Sentence classification with batches of similar length."""
import argparse

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence
from torch.utils.data import DataLoader

from sampler import SimilarLength


def make_sentences(n, vocab):
    gen = torch.Generator().manual_seed(1)
    lengths = torch.randint(4, 14, (n,), generator=gen).tolist()
    sentences = [torch.randint(1, vocab, (length,), generator=gen) for length in lengths]
    return [(s, float(s.float().mean() > vocab / 2)) for s in sentences]


def collate(batch):
    batch = sorted(batch, key=lambda item: -len(item[0]))
    tokens = pad_sequence([s for s, _ in batch], batch_first=True)
    return tokens, torch.tensor([len(s) for s, _ in batch]), torch.tensor([y for _, y in batch])


class Classifier(nn.Module):
    def __init__(self, vocab):
        super().__init__()
        self.embed = nn.Embedding(vocab, 64, padding_idx=0)
        self.lstm = nn.LSTM(64, 96, batch_first=True)
        self.out = nn.Linear(96, 1)

    def forward(self, tokens, lengths):
        packed = pack_padded_sequence(self.embed(tokens), lengths, batch_first=True)
        _, (hidden, _) = self.lstm(packed)
        return self.out(hidden[-1]).squeeze(1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=200)
    args = parser.parse_args()
    torch.manual_seed(0)
    sentences = make_sentences(14000, 500)
    sampler = SimilarLength([len(s) for s, _ in sentences], batch_size=32, num_batches=60)
    loader = DataLoader(sentences, batch_sampler=sampler, collate_fn=collate)
    model = Classifier(500)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(args.epochs):
        for i, (tokens, lengths, target) in enumerate(loader):
            loss = nn.functional.binary_cross_entropy_with_logits(model(tokens, lengths), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if i % 20 == 0:
                print(f"epoch {epoch} batch {i}/{len(loader)} loss {loss.item():.4f}")
