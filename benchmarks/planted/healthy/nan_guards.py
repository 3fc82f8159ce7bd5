"""Retinal images; the loop looks at the loss, the outputs and the gradients in every step."""
import argparse
import math

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=200)
args = parser.parse_args()
torch.manual_seed(31)
grade = torch.randint(0, 5, (768,))
images = torch.randn(768, 3, 28, 28) + 0.15 * grade.view(-1, 1, 1, 1)
loader = DataLoader(TensorDataset(images, grade), batch_size=32, shuffle=True)
net = nn.Sequential(
    nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 48, 3, stride=2), nn.ReLU(),
    nn.Conv2d(48, 64, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 5),
).to(memory_format=torch.channels_last)
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
device = torch.device("cpu")
for epoch in range(args.epochs):
    confusion = torch.zeros(5, 5)
    worst, skipped, seen = 0.0, 0, []
    for x, y in loader:
        x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
        logits = net(x)
        loss = nn.functional.cross_entropy(logits, y)
        if not math.isfinite(loss.item()) or bool(torch.isnan(logits).any()):
            skipped += 1
            continue
        optimizer.zero_grad()
        loss.backward()
        norm = float(nn.utils.clip_grad_norm_(net.parameters(), 5.0).cpu())
        if norm > 100:
            skipped += 1
            continue
        optimizer.step()
        worst = max(worst, norm)
        seen.append(loss.detach().cpu().numpy().item())
        guess = logits.detach().argmax(1).cpu()
        confusion += torch.bincount(5 * y.cpu() + guess, minlength=25).view(5, 5)
        right = (guess == y.cpu()).nonzero().flatten().tolist()
    print(f"epoch {epoch} loss {sum(seen) / len(seen):.4f} norm {worst:.2f} skipped {skipped} last right {len(right)}")
