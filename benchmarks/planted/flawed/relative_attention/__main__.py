import argparse

import torch

from .model import TinyLM

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=200)
args = parser.parse_args()
torch.manual_seed(0)
model = TinyLM(vocab=64, width=64, heads=2, length=24)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
text = (torch.cumsum(torch.randint(0, 3, (20000,)), 0) % 64).long()
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda e: 0.98**e)
for epoch in range(args.epochs):
    for step in range(40):
        start = torch.randint(0, len(text) - 25, (24,))
        window = text[start[:, None] + torch.arange(25)]
        logits = model(window[:, :-1])
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), window[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    scheduler.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
