import argparse

import torch
import torch.nn as nn


class Encoder(nn.Module):
    def __init__(self, vocab=500, width=64):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        layer = nn.TransformerEncoderLayer(width, 4, 128, dropout=0.1, batch_first=True)
        self.body = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(width, 3)

    def forward(self, tokens):
        return self.head(self.body(self.embed(tokens)).mean(1))


class Task:
    def __init__(self, args):
        torch.manual_seed(args.seed)
        self.x = torch.randint(0, 500, (1280, 20))
        self.y = (self.x < 170).sum(1).clamp(5, 7) - 5
        self.vx = torch.randint(0, 500, (5120, 20))
        self.vy = (self.vx < 170).sum(1).clamp(5, 7) - 5
        self.model = Encoder()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)

    def train(self):
        self.model.train()
        for index in torch.randperm(len(self.x)).split(64):
            loss = nn.functional.cross_entropy(self.model(self.x[index]), self.y[index])
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        return loss.item()

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        right = 0
        for x, y in zip(self.vx.split(128), self.vy.split(128)):
            logits = self.model(x)
            right += (logits.argmax(-1) == y).sum().item()
        return right / len(self.vx)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    task = Task(args)
    for epoch in range(args.epochs):
        loss = task.train()
        print(f"epoch {epoch} loss {loss:.4f} valid accuracy {task.evaluate():.4f}")
