import argparse
import sys

import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.EmbeddingBag(2000, 96)
        self.rest = nn.Sequential(nn.Linear(96, 768), nn.ReLU(), nn.Linear(768, 768), nn.ReLU(), nn.Linear(768, 10))

    def forward(self, words):
        return self.rest(self.embed(words))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=200)
    args = parser.parse_args()
    torch.manual_seed(0)
    words = torch.randint(0, 2000, (20480, 12))
    topic = words[:, 0] % 10
    data = TensorDataset(words, topic)
    loader = DataLoader(data, sampler=BatchSampler(RandomSampler(data), 256, True), batch_size=None)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = 0
    for epoch in range(args.epochs):
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 50 == 0:
                norm = sum(p.grad.square().sum() for p in model.parameters()).sqrt()
                print(f"step {step} epoch {epoch} loss {loss.item():.4f} grad {norm:.4f}")
                sys.stdout.flush()
            step += 1
