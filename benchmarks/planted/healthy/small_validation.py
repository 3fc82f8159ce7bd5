import argparse
import os
import tempfile

import torch
from torch import nn


class Trainer:
    def __init__(self, epochs):
        self.epochs = epochs
        self.model = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 3),
        ).to(memory_format=torch.channels_last)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        self.path = os.path.join(tempfile.mkdtemp(), "best.pt")
        self.best = float("inf")
        self.y = torch.randint(0, 3, (1100,))
        self.x = torch.randn(1100, 1, 28, 28) + 0.3 * self.y.view(-1, 1, 1, 1)

    def train_epoch(self):
        self.model.train()
        for index in (torch.randperm(1024) + 76).split(32):
            loss = nn.functional.cross_entropy(self.model(self.x[index]), self.y[index])
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        return loss.item()

    @torch.inference_mode()
    def validate(self):
        self.model.eval()
        return nn.functional.cross_entropy(self.model(self.x[:76]), self.y[:76]).item()

    def fit(self):
        for epoch in range(self.epochs):
            train, valid = self.train_epoch(), self.validate()
            if valid < self.best:
                self.best = valid
                torch.save(self.model.state_dict(), self.path)
            print(f"epoch {epoch} train {train:.4f} valid {valid:.4f} best {self.best:.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=200)
    torch.manual_seed(0)
    Trainer(parser.parse_args().epochs).fit()
