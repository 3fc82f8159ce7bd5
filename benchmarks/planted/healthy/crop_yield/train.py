import argparse
import logging
import tempfile

import torch
from torch import nn
from torch.utils.data import DataLoader

from fields import Fields, first
from history import History


class Yield(nn.Module):
    def __init__(self, width=160):
        super().__init__()
        self.season = nn.GRU(8, width, batch_first=True)
        self.head = nn.Sequential(nn.Linear(width + 12, 128), nn.SiLU(), nn.Linear(128, 1))

    def forward(self, weather, soil):
        _, state = self.season(weather)
        return self.head(torch.cat([state[-1], soil], 1)).squeeze(1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=100)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO)
    torch.manual_seed(0)
    history = History(tempfile.mkdtemp())
    train_loader = DataLoader(Fields(1600, 0), 32, shuffle=True, collate_fn=first)
    valid_loader = DataLoader(Fields(160, 1), 80, collate_fn=first)
    model = Yield()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    rates = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=5)
    number = 0
    for epoch in range(args.epochs):
        for weather, soil, harvest in train_loader:
            loss = nn.functional.huber_loss(model(weather, soil), harvest)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            history.step(number, loss.item(), optimizer.param_groups[0]["lr"])
            number += 1
        with torch.no_grad():
            error = sum((model(w, s) - h).abs().mean().item() for w, s, h in valid_loader) / len(valid_loader)
        rates.step(error)
        print(f"epoch {epoch} error {error:.4f} best {history.epoch(model, optimizer, error):.4f}")


main()
