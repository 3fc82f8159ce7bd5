#!/usr/bin/env python3
"""Assigns invoice text boxes to fields (total, vat, iban, ...).

Small transformer encoder over the boxes of a page; box = 12 layout/text features.
"""
import argparse
import logging

import torch
import torch.nn as nn
import torch.nn.functional as F

log = logging.getLogger("invoices")

FIELDS = ["other", "total", "net", "vat", "iban", "date", "due", "number", "vendor", "customer"]
BOXES = 24


def synth_pages(n, gen):
    y = torch.randint(0, len(FIELDS), (n, BOXES), generator=gen)
    centre = torch.randn(len(FIELDS), 12, generator=gen)
    x = centre[y] + 0.9 * torch.randn(n, BOXES, 12, generator=gen)
    # the customer box is only told from the vendor box by what stands above it
    x[:, 1:, 0] += 0.5 * (y[:, :-1] == 8).float()
    return x, y


class PageEncoder(nn.Module):
    def __init__(self, dim=32, heads=4, layers=1):
        super().__init__()
        self.embed = nn.Linear(12, dim)
        self.pos = nn.Parameter(0.02 * torch.randn(1, BOXES, dim))
        layer = nn.TransformerEncoderLayer(dim, heads, 2 * dim, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(dim, len(FIELDS))

    def forward(self, x):
        return self.head(self.encoder(self.embed(x) + self.pos))


class Trainer:
    def __init__(self, model, args):
        self.model = model
        self.opt = torch.optim.AdamW(model.parameters(), lr=args.lr)
        self.step_no = 0

    def train_step(self, x, y):
        self.opt.zero_grad()
        logits = self.model(x)
        loss = F.cross_entropy(logits.flatten(0, 1), y.flatten())
        probs = logits.detach().softmax(-1)
        log.debug(f"step {self.step_no}: input {tuple(x.shape)}, loss {loss}")  # <<
        log.debug(f"field probabilities of the first pages:\n{probs[:4]}")  # <<
        loss.backward()
        log.debug(f"head grad:\n{self.model.head.weight.grad}")  # <<
        self.opt.step()
        self.step_no += 1
        return loss.item()

    @torch.no_grad()
    def evaluate(self, x, y):
        return (self.model(x).argmax(-1) == y).float().mean().item()


def main():
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("--epochs", type=int, default=12)
    ap.add_argument("--batch", type=int, default=32)
    ap.add_argument("--lr", type=float, default=1e-3)
    ap.add_argument("-v", "--verbose", action="store_true")
    args = ap.parse_args()
    logging.basicConfig(level=logging.DEBUG if args.verbose else logging.INFO, format="%(levelname)s %(message)s")

    torch.manual_seed(64)
    gen = torch.Generator().manual_seed(64)
    x, y = synth_pages(3200 + 300, gen)
    x_val, y_val = x[3200:], y[3200:]
    x, y = x[:3200], y[:3200]

    trainer = Trainer(PageEncoder(), args)
    for epoch in range(args.epochs):
        total = 0.0
        batches = torch.randperm(len(x)).split(args.batch)
        for idx in batches:
            total += trainer.train_step(x[idx], y[idx])  # <<
        log.info("epoch %d  loss %.4f  val acc %.4f", epoch, total / len(batches), trainer.evaluate(x_val, y_val))


if __name__ == "__main__":
    main()
