import argparse
import json
import os
import tempfile

import torch
import torch.nn as nn


class RunLog:
    def __init__(self, path):
        self.file = open(path, "w")

    def write(self, record):
        self.file.write(json.dumps(record) + "\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=200)
    args = parser.parse_args()
    torch.manual_seed(0)
    x = torch.randn(6400, 100)
    y = torch.stack([x[:, :20].sum(1), x[:, 20:40].sum(1)], 1)
    model = nn.Sequential(nn.Linear(100, 400), nn.ReLU(), nn.Linear(400, 400), nn.ReLU(), nn.Linear(400, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    log = RunLog(os.path.join(tempfile.mkdtemp(), "train.jsonl"))
    step = 0
    for epoch in range(args.epochs):
        for rows in torch.randperm(len(x)).split(128):
            inputs, targets = x[rows], y[rows]
            outputs = model(inputs)
            loss = nn.functional.mse_loss(outputs, targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            log.write({"step": step, "loss": loss.item()})
            step += 1
        print(f"epoch {epoch} loss {loss.item():.5f}")


if __name__ == "__main__":
    main()
