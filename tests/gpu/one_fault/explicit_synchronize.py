"""The loop waits for the device and gives its memory back in each step; repaired: it does neither."""

import torch
from torch import nn


def main(repaired=False, steps=100_000):
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(1024, 1024), nn.GELU(), nn.LayerNorm(1024)) for _ in range(12)]
    model = nn.Sequential(*layers, nn.Linear(1024, 10)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    inputs, labels = torch.randn(2048, 1024, device="cuda"), torch.randint(0, 10, (2048,), device="cuda")
    for _ in range(steps):
        loss = nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if not repaired:
            torch.cuda.synchronize()
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
