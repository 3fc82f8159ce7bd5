"""Metric learning with triplets drawn on the fly."""
import argparse
import random

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


class Triplets(Dataset):
    def __init__(self, vectors, labels):
        self.vectors = vectors
        self.labels = labels

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        label = self.labels[i]
        positives = [j for j, other in enumerate(self.labels) if other == label]  # <<
        negatives = [j for j, other in enumerate(self.labels) if other != label]  # <<
        p, n = random.choice(positives), random.choice(negatives)
        return self.vectors[i], self.vectors[p], self.vectors[n]


class Trainer:
    def __init__(self, dataset, epochs):
        self.epochs = epochs
        self.loader = DataLoader(dataset, batch_size=64, shuffle=True)
        self.net = nn.Sequential(nn.Linear(256, 768), nn.ReLU(), nn.Linear(768, 768), nn.ReLU(), nn.Linear(768, 64))
        self.optimizer = torch.optim.RMSprop(self.net.parameters(), lr=1e-4)
        self.criterion = nn.TripletMarginLoss(margin=0.5)

    def step(self, anchor, positive, negative):
        self.optimizer.zero_grad()
        embed = [nn.functional.normalize(self.net(v), dim=-1) for v in (anchor, positive, negative)]
        loss = self.criterion(*embed)
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def fit(self):
        for epoch in range(self.epochs):
            losses = [self.step(*triplet) for triplet in self.loader]
            print(f"epoch {epoch:3d} triplet loss {sum(losses) / len(losses):.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=200)
    options = parser.parse_args()
    random.seed(0)
    torch.manual_seed(0)
    num = 1800
    identity = torch.randint(0, 60, (num,))
    centres = torch.randn(60, 256)
    faces = centres[identity] + 0.8 * torch.randn(num, 256)
    Trainer(Triplets(faces, identity.tolist()), options.epochs).fit()
