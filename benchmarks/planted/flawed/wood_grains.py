import argparse

import torch
import torch.nn.functional as F
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=40)
args = parser.parse_args()
torch.manual_seed(12)


class Descriptors(nn.Module):
    """One descriptor for each patch of a wood sample, and how alike it is to some learned ones."""

    def __init__(self, grains=10, width=16):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, width, 3, 1, 1))
        self.grains = nn.Parameter(torch.randn(grains, width))

    def forward(self, x):
        h = self.body(x)
        length = h.norm(dim=1, keepdim=True)  # <<
        alike = F.conv2d(h / (length + 1e-6), F.normalize(self.grains)[:, :, None, None])
        return 8 * alike.amax((2, 3))


def samples(n):
    angles = torch.randint(0, 10, (n,))
    y, x = torch.meshgrid(torch.linspace(-1, 1, 48), torch.linspace(-1, 1, 48), indexing="ij")
    turned = x * torch.cos(angles * 0.31)[:, None, None] + y * torch.sin(angles * 0.31)[:, None, None]
    return (torch.sin(24 * turned) + 0.5 * torch.randn(n, 48, 48))[:, None], angles


images, labels = samples(768)
model = Descriptors()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
for epoch in range(args.epochs):
    hits = 0
    for batch in torch.randperm(len(images)).split(32):
        logits = model(images[batch])
        loss = F.cross_entropy(logits, labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        hits += (logits.detach().argmax(1) == labels[batch]).sum().item()
    print(f"epoch {epoch}: loss {loss.item():.3f} accuracy {hits / len(images):.3f}")
