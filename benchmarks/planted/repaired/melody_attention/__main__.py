import argparse

import torch

from melody_attention.net import Melody


def tunes(n, g):
    start = torch.randint(0, 64, (n, 1), generator=g)
    steps = torch.randint(-2, 3, (n, 32), generator=g)
    return (start + steps.cumsum(1)) % 64


parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=150)
args = parser.parse_args()
g = torch.Generator().manual_seed(1)
torch.manual_seed(1)
data = tunes(1536, g)
model = Melody()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for epoch in range(args.epochs):
    for batch in data[torch.randperm(len(data), generator=g)].split(16):
        logits = model(batch)
        loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch} loss {loss.item():.4f} focus", *(f"{value:.3f}" for value in model.focus()))
