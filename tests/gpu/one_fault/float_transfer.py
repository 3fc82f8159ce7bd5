"""Images that were bytes travel as float32; repaired: as bytes, and are scaled on the device."""

import torch
from torch import nn


def main(repaired=False, steps=100_000):
    torch.manual_seed(0)
    pixels = torch.randint(0, 256, (4, 128, 3, 224, 224), dtype=torch.uint8)
    mean, std = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1), torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)
    batches = [batch if repaired else (batch / 255 - mean) / std for batch in pixels]
    mean, std, labels = mean.cuda(), std.cuda(), torch.randint(0, 10, (128,), device="cuda")
    model = nn.Sequential(nn.Conv2d(3, 64, 7, 4, 3), nn.ReLU(), nn.Conv2d(64, 128, 3, 2, 1), nn.ReLU())
    model = nn.Sequential(model, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(steps):
        images = batches[step % 4].cuda()
        if repaired:
            images = (images / 255 - mean) / std
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
