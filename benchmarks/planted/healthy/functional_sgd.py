import argparse

import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset
from torch.nn import functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=200)
args = parser.parse_args()

torch.manual_seed(0)
sizes = [80, 768, 768, 4]
weights = [(torch.randn(b, a) / a**0.5).requires_grad_() for a, b in zip(sizes, sizes[1:])]
biases = [torch.zeros(b, requires_grad=True) for b in sizes[1:]]
parameters = weights + biases


def net(x):
    for w, b in zip(weights[:-1], biases[:-1]):
        x = torch.relu(F.linear(x, w, b))
    return F.linear(x, weights[-1], biases[-1])


x = torch.randn(8192, 80)
data = TensorDataset(x, x[:, :4].argmax(1))
loader = DataLoader(data, sampler=BatchSampler(RandomSampler(data), 512, False), batch_size=None)
for epoch in range(args.epochs):
    for a, b in loader:
        loss = F.cross_entropy(net(a), b)
        loss.backward()
        with torch.no_grad():
            torch._foreach_add_(parameters, [p.grad for p in parameters], alpha=-0.05)
            for p in parameters:
                p.grad = None
    print(f"epoch {epoch} loss {loss.item():.4f}")
