import argparse

import torch
from torch import nn

ap = argparse.ArgumentParser()
ap.add_argument("--epochs", type=int, default=200)
epochs = ap.parse_args().epochs

torch.manual_seed(0)
torch.set_printoptions(precision=4, threshold=4000)

basis = torch.randn(8, 200)
signals = torch.randn(2560, 8) @ basis + 0.1 * torch.randn(2560, 200)

encoder = nn.Sequential(nn.Linear(200, 300), nn.ELU(), nn.Linear(300, 8))
decoder = nn.Sequential(nn.Linear(8, 300), nn.ELU(), nn.Linear(300, 200))
optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=1e-3)

for epoch in range(epochs):
    order = torch.randperm(len(signals))
    for step in range(len(signals) // 64):
        batch = signals[order[step * 64 : step * 64 + 64]]
        code = encoder(batch)
        restored = decoder(code)
        loss = ((restored - batch) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"epoch {epoch} step {step} loss {loss.item():.5f}")
        print("codes", code)  # <<
        print("grad", decoder[2].bias.grad)  # <<

print("done", f"{loss.item():.6f}")
