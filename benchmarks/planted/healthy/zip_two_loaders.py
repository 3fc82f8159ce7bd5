import argparse

import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset


def loader(data, size):
    return DataLoader(data, sampler=BatchSampler(RandomSampler(data), size, True), batch_size=None)


parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=200)
args = parser.parse_args()
torch.manual_seed(0)
y = torch.randint(0, 4, (2560,))
labelled = TensorDataset(torch.randn(4, 160)[y] + torch.randn(2560, 160), y)
unlabelled = TensorDataset(torch.randn(15360, 160))
net = nn.Sequential(nn.Linear(160, 640), nn.ReLU(), nn.Linear(640, 640), nn.ReLU(), nn.Linear(640, 4))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, nesterov=True)
for epoch in range(args.epochs):
    for step, ((x, target), (u,)) in enumerate(zip(loader(labelled, 64), loader(unlabelled, 384))):
        loss = nn.functional.cross_entropy(net(x), target)
        probability = net(u).softmax(1)
        entropy = -(probability * (probability + 1e-8).log()).sum(1).mean()
        optimizer.zero_grad()
        (loss + 0.1 * entropy).backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"epoch {epoch} step {step} loss {loss.item():.4f} entropy {entropy.item():.4f}")
