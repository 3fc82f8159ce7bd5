"""Texts of unequal length, batches of like lengths from a batch sampler of its own, padded in the collate function."""

import random

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset, Sampler


class Texts(Dataset):
    def __init__(self):
        draw = random.Random(6)
        self.texts = ["".join(draw.choice("abcdef ") for _ in range(draw.randint(4, 30))) for _ in range(300)]

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, index):
        text = self.texts[index]
        tokens = torch.tensor([ord(letter) % 32 for letter in text])
        return tokens, float(text.count("a") > text.count("b"))


class Buckets(Sampler):
    def __init__(self, dataset, size):
        self.order, self.size = sorted(range(len(dataset)), key=lambda index: len(dataset.texts[index])), size

    def __len__(self):
        return -(-len(self.order) // self.size)

    def __iter__(self):
        batches = [self.order[start : start + self.size] for start in range(0, len(self.order), self.size)]
        random.shuffle(batches)
        return iter(batches)


def collate(samples):
    tokens, labels = zip(*samples, strict=True)
    lengths = torch.tensor([len(each) for each in tokens])
    return {"tokens": pad_sequence(tokens, batch_first=True), "lengths": lengths}, torch.tensor(labels)


random.seed(7)
torch.manual_seed(23)
embed, head = nn.EmbeddingBag(33, 16, mode="mean", padding_idx=0), nn.Linear(16, 1)
opt = torch.optim.Adagrad([*embed.parameters(), *head.parameters()], lr=0.05)
texts = Texts()
loader = DataLoader(texts, batch_sampler=Buckets(texts, 20), collate_fn=collate)
for epoch in range(40):
    for batch, labels in loader:
        loss = nn.functional.binary_cross_entropy_with_logits(head(embed(batch["tokens"])).squeeze(1), labels)
        opt.zero_grad()
        loss.backward()
        opt.step()
