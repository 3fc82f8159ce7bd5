"""Split addresses into their parts with a small conditional random field."""
import argparse

import torch
from torch import nn

PARTS = ["STREET", "NUMBER", "CITY", "ZIP"]
TAGS = ["O"] + [f"{place}-{part}" for part in PARTS for place in "BI"]


def addresses(n, length=18, seed=0):
    g = torch.Generator().manual_seed(seed)
    words = torch.randint(0, 600, (n, length), generator=g)
    return words, (words // 67 + (torch.rand(n, length, generator=g) < 0.05)) % len(TAGS)


class Tagger(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.embed = nn.Embedding(600, width)
        self.lstm = nn.LSTM(width, width, batch_first=True, bidirectional=True)
        self.emit = nn.Linear(2 * width, len(TAGS))
        self.follow = nn.Parameter(torch.zeros(len(TAGS), len(TAGS)))

    def forward(self, words):
        return self.emit(self.lstm(self.embed(words))[0])


def negative_likelihood(emissions, follow, tags):
    score = emissions.gather(2, tags.unsqueeze(2)).sum((1, 2)) + follow[tags[:, :-1], tags[:, 1:]].sum(1)
    total = emissions[:, 0]
    for t in range(1, emissions.shape[1]):
        total = torch.logsumexp(total.unsqueeze(2) + follow, 1) + emissions[:, t]
    return (torch.logsumexp(total, 1) - score).mean()


def decode(emissions, follow):
    paths = []
    follow = follow.tolist()
    for sentence in emissions.tolist():
        best, back = sentence[0], []
        for step in sentence[1:]:
            pointers, scores = [], []
            for tag in range(len(TAGS)):
                options = [best[k] + follow[k][tag] for k in range(len(TAGS))]  # <<
                top = max(range(len(TAGS)), key=options.__getitem__)  # <<
                pointers.append(top)
                scores.append(options[top] + step[tag])
            best = scores
            back.append(pointers)
        path = [max(range(len(TAGS)), key=best.__getitem__)]
        for pointers in reversed(back):
            path.append(pointers[path[-1]])
        paths.append(path[::-1])
    return torch.tensor(paths)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=200)
    args = parser.parse_args()
    torch.manual_seed(0)
    words, tags = addresses(1440)
    model = Tagger()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(args.epochs):
        exact = 0
        for index in torch.randperm(len(words)).split(24):
            emissions = model(words[index])
            loss = negative_likelihood(emissions, model.follow, tags[index])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            guess = decode(emissions.detach(), model.follow.detach())  # <<
            exact += (guess == tags[index]).all(1).sum().item()
        print(f"epoch {epoch} loss {loss.item():.4f} exact {exact / len(words):.3f}")


if __name__ == "__main__":
    main()
