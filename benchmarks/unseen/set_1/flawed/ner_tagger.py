"""BiLSTM-CRF for named entities on a small generated corpus."""
import argparse
import random
import time

import torch
import torch.nn as nn

ENTITIES = ["PER", "ORG", "LOC", "DATE", "PROD", "LAW"]
TAGS = ["O"] + [f"{p}-{e}" for e in ENTITIES for p in ("B", "I")]
VOCAB = 3000


def sentence(rng, length):
    words, tags = [], []
    while len(words) < length:
        if rng.random() < 0.3:
            e = rng.randrange(len(ENTITIES))
            for j in range(rng.randint(1, 3)):
                words.append(1 + (e * 200 + rng.randrange(200)))
                tags.append(1 + 2 * e + (0 if j == 0 else 1))
        else:
            words.append(1300 + rng.randrange(VOCAB - 1300))
            tags.append(0)
    return words[:length], tags[:length]


def corpus(n, length, seed):
    rng = random.Random(seed)
    pairs = [sentence(rng, length) for _ in range(n)]
    words = torch.tensor([p[0] for p in pairs])
    tags = torch.tensor([p[1] for p in pairs])
    return words, tags


class CRF(nn.Module):
    def __init__(self, n_tags):
        super().__init__()
        self.n_tags = n_tags
        self.transitions = nn.Parameter(torch.randn(n_tags, n_tags) * 0.1)  # [to, from]
        self.start = nn.Parameter(torch.zeros(n_tags))
        self.stop = nn.Parameter(torch.zeros(n_tags))

    def partition(self, emissions):
        """log Z of every sentence; emissions are (time, batch, tags)."""
        alpha = self.start + emissions[0]
        for emit in emissions[1:]:
            alpha_t = []
            for tag in range(self.n_tags):  # <<
                scores = alpha + self.transitions[tag] + emit[:, tag].unsqueeze(1)  # <<
                alpha_t.append(torch.logsumexp(scores, dim=1))  # <<
            alpha = torch.stack(alpha_t, dim=1)
        return torch.logsumexp(alpha + self.stop, dim=1)

    def score(self, emissions, tags):
        picked = emissions.gather(2, tags.unsqueeze(2)).squeeze(2).sum(0)
        trans = self.transitions[tags[1:], tags[:-1]].sum(0)
        return picked + trans + self.start[tags[0]] + self.stop[tags[-1]]

    def forward(self, emissions, tags):
        return (self.partition(emissions) - self.score(emissions, tags)).mean()  # <<


class Tagger(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, dim)
        self.drop = nn.Dropout(0.2)
        self.lstm = nn.LSTM(dim, hidden, bidirectional=True, batch_first=True)
        self.emit = nn.Linear(2 * hidden, len(TAGS))
        self.crf = CRF(len(TAGS))

    def emissions(self, words):
        h, _ = self.lstm(self.drop(self.embed(words)))
        return self.emit(self.drop(h)).transpose(0, 1)

    def neg_log_likelihood(self, words, tags):
        return self.crf(self.emissions(words), tags.t())


class Progress:
    def __init__(self, every):
        self.every = every
        self.count = 0
        self.total = 0.0

    def push(self, loss):
        self.count += 1
        self.total = self.total + loss.detach()

    def mean(self):
        return float(self.total) / self.count


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=16)
    parser.add_argument("--batch", type=int, default=32)
    args = parser.parse_args()

    torch.manual_seed(1)
    words, tags = corpus(1920, 24, seed=1)
    model = Tagger(dim=100, hidden=128)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    gen = torch.Generator().manual_seed(2)

    for epoch in range(args.epochs):
        began = time.time()
        progress = Progress(every=20)
        for idx in torch.randperm(len(words), generator=gen).split(args.batch):
            model.zero_grad()
            loss = model.neg_log_likelihood(words[idx], tags[idx])  # <<
            loss.backward()  # <<
            optimizer.step()
            progress.push(loss)
        print(f"epoch {epoch + 1}: nll {progress.mean():.3f} ({time.time() - began:.2f}s)")


if __name__ == "__main__":
    main()
