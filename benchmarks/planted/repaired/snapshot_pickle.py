import argparse
import copy
import gzip
import pickle
import tempfile
from pathlib import Path

import torch
from torch import nn


def make_task(n=3072):
    x = torch.randn(n, 128)
    return x, torch.softmax(x @ torch.randn(128, 10), 1)


def snapshot(folder, **state):
    with gzip.open(folder / "state.pkl.gz", "wb", compresslevel=1) as f:
        pickle.dump(state, f)


parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=200)
args = parser.parse_args()
torch.manual_seed(0)
folder = Path(tempfile.mkdtemp())
x, y = make_task()
net = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
average = copy.deepcopy(net)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for epoch in range(args.epochs):
    for step, index in enumerate(torch.randperm(len(x)).split(64)):
        loss = nn.functional.cross_entropy(net(x[index]), y[index])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            torch._foreach_lerp_(list(average.parameters()), list(net.parameters()), 0.01)
    snapshot(folder, net=net.state_dict(), average=average.state_dict(), optimizer=optimizer.state_dict())
    print(f"epoch {epoch} loss {loss.item():.5f}")
