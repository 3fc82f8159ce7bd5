"""Few samples in a step, of a network that hardly works for them; repaired: eight times as many."""

import torch
from torch import nn

WORTH = 8  # steps of the script that one of the repaired script does the work of


def main(repaired=False, steps=100_000):
    torch.manual_seed(0)
    size = 128 if repaired else 16
    model = nn.Sequential(nn.Linear(1024, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 10))
    model = model.cuda()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    inputs, labels = torch.randn(8192, 1024, device="cuda"), torch.randint(0, 10, (8192,), device="cuda")
    for step in range(steps):
        at = step * size % 8192
        loss = nn.functional.cross_entropy(model(inputs[at : at + size]), labels[at : at + size])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
