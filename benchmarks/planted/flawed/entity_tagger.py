import argparse
import re

import torch
import torch.nn as nn

TAGS = ["O", "B-PER", "I-PER", "B-ORG", "I-ORG", "B-LOC", "I-LOC"]


class Tagger(nn.Module):
    def __init__(self, vocab=3000, width=96):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.context = nn.Conv1d(width, width, 3, padding=1)
        self.out = nn.Linear(width, len(TAGS))

    def forward(self, words):
        hidden = torch.relu(self.context(self.embed(words).transpose(1, 2)))
        return self.out(hidden.transpose(1, 2))


class Corpus:
    def __init__(self, n, length):
        g = torch.Generator().manual_seed(0)
        self.words = torch.randint(0, 3000, (n, length), generator=g)
        self.tags = self.words % len(TAGS)

    def batches(self, size):
        order = torch.randperm(len(self.words))
        for index in order.split(size):
            yield self.words[index], self.tags[index]


def word_accuracy(predicted, gold):
    """Share of words tagged right, by tag name."""
    right, total = {}, {}
    for sentence, truth in zip(predicted.tolist(), gold.tolist()):  # <<
        names = [TAGS[t] for t in sentence]  # <<
        wanted = [TAGS[t] for t in truth]  # <<
        for name, want in zip(names, wanted):  # <<
            prefix, kind = re.match(r"([BIO])-?(.*)", name).groups()  # <<
            want_prefix, want_kind = re.match(r"([BIO])-?(.*)", want).groups()  # <<
            total[want] = total.get(want, 0) + 1  # <<
            if prefix == want_prefix and kind == want_kind:  # <<
                right[want] = right.get(want, 0) + 1  # <<
    return sum(right.values()) / sum(total.values())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--length", type=int, default=24)
    args = parser.parse_args()
    torch.manual_seed(0)
    corpus = Corpus(12800, args.length)
    model = Tagger(width=16)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for epoch in range(args.epochs):
        for step, (words, tags) in enumerate(corpus.batches(256)):
            logits = model(words)
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), tags.flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            accuracy = word_accuracy(logits.argmax(-1), tags)  # <<
            if step % 10 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f} words right {accuracy:.3f}")


if __name__ == "__main__":
    main()
