import argparse

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=200)
args = parser.parse_args()
torch.manual_seed(0)
y = torch.randint(0, 5, (960,))
x = torch.randn(960, 3, 24, 24) + y.view(-1, 1, 1, 1) * 0.2
loader = DataLoader(TensorDataset(x, y), batch_size=24, shuffle=True)
net = nn.Sequential(
    nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 48, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(48, 48, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(48, 5),
).to(memory_format=torch.channels_last)
opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
for epoch in range(args.epochs):
    running_loss = running_acc = 0.0
    for i, (images, labels) in enumerate(loader):
        logits = net(images)
        loss = nn.functional.cross_entropy(logits, labels)
        opt.zero_grad()
        loss.backward()
        opt.step()
        running_loss += loss.item()
        running_acc += (logits.argmax(1) == labels).float().mean().item()
    print(f"epoch {epoch} loss {running_loss / len(loader):.4f} acc {running_acc / len(loader):.3f}")
