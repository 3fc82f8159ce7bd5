import argparse
import random

import numpy as np
import torch
import torch.nn as nn


def write_rows(n):
    rnd = random.Random(1)
    rows = []
    for _ in range(n):
        dist, hour, people = rnd.expovariate(0.3), rnd.randrange(24), rnd.randint(1, 5)
        price = 2.5 + 1.8 * dist + (3 if hour in (8, 9, 17, 18) else 0) + rnd.gauss(0, 0.5)
        rows.append(f"{dist:.3f},{hour},{people},{rnd.random():.5f},{rnd.random():.5f},{price:.2f}")
    return rows


def parse(row):
    fields = row.split(",")  # <<
    values = [float(v) for v in fields]  # <<
    hour = [1.0 if h == int(values[1]) else 0.0 for h in range(24)]  # <<
    return [values[0] / 10, values[2] / 5, values[3], values[4], *hour], values[5] / 10  # <<


def minibatches(rows, batch_size, rnd):
    order = list(range(len(rows)))
    rnd.shuffle(order)
    for start in range(0, len(order), batch_size):
        parsed = [parse(rows[i]) for i in order[start : start + batch_size]]  # <<
        x = torch.tensor([features for features, _ in parsed])  # <<
        y = torch.tensor([price for _, price in parsed])
        yield x, y


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=200)
    args = parser.parse_args()
    torch.manual_seed(0)
    rnd = random.Random(0)
    rows = write_rows(24576)
    net = nn.Sequential(nn.Linear(28, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 1))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    for epoch in range(args.epochs):
        errors = []
        for x, y in minibatches(rows, 512, rnd):  # <<
            loss = nn.functional.smooth_l1_loss(net(x).squeeze(1), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            errors.append(loss.item())
        print(f"epoch {epoch}: {np.mean(errors):.5f}")


if __name__ == "__main__":
    main()
