import argparse
import json
import random
import tempfile

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset


def write_messages(path, n):
    rnd = random.Random(3)
    with open(path, "w") as out:
        for k in range(n):
            wobble = rnd.random()
            readings = [
                {"t": t, "acc": [rnd.gauss(0, 0.3 + wobble) for _ in range(3)], "speed": rnd.uniform(2, 9), "gps": None}
                for t in range(40)
            ]
            out.write(json.dumps({"id": k, "readings": readings, "wobble": wobble}) + "\n")


class Rides(IterableDataset):
    """Messages in the order of the file, shuffled in a small buffer."""

    def __init__(self, path, buffer=256):
        self.path, self.buffer = path, buffer
        self.rides = [self.parse(line) for line in open(path)]

    def parse(self, line):
        message = json.loads(line)
        rows = []
        for reading in message["readings"]:
            rows.append([*reading["acc"], reading["speed"] / 10])
        return torch.tensor(rows), torch.tensor(message["wobble"])

    def __iter__(self):
        held = []
        for ride in self.rides:
            held.append(ride)
            if len(held) > self.buffer:
                yield held.pop(random.randrange(len(held)))
        random.shuffle(held)
        yield from held


class Wobble(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(4, 64, batch_first=True)
        self.out = nn.Linear(64, 1)

    def forward(self, x):
        return self.out(self.gru(x)[0].mean(1)).squeeze(1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=200)
    args = parser.parse_args()
    random.seed(0)
    torch.manual_seed(0)
    path = tempfile.mkdtemp() + "/rides.jsonl"
    write_messages(path, 2048)
    loader = DataLoader(Rides(path), batch_size=64)
    model = Wobble()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(args.epochs):
        total, count = 0.0, 0
        for x, y in loader:
            loss = (model(x) - y).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total, count = total + loss.item(), count + 1
        print(f"epoch {epoch} mse {total / count:.5f}")


if __name__ == "__main__":
    main()
