import argparse

import torch

from intent_classifier.corpus import loaders
from intent_classifier.model import Intent

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=200)
args = parser.parse_args()

torch.manual_seed(0)
train_loader = loaders()
model = Intent()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for epoch in range(args.epochs):
    for ids, label in train_loader:  # <<
        loss = torch.nn.functional.cross_entropy(model(ids), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
