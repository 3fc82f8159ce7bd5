import argparse
import random
from dataclasses import dataclass

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


@dataclass
class Config:
    vocab: int = 500
    length: int = 48
    width: int = 64
    heads: int = 4
    layers: int = 1
    batch: int = 16
    mask_id: int = 1
    mask_prob: float = 0.15


class MaskedTokens(Dataset):
    def __init__(self, cfg, num_sequences):
        gen = torch.Generator().manual_seed(0)
        self.cfg = cfg
        self.rows = (torch.rand(num_sequences, cfg.length, generator=gen) ** 3 * (cfg.vocab - 2) + 2).long().tolist()

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        inputs, labels = [], []
        for token in self.rows[i]:
            draw = random.random()
            if draw < self.cfg.mask_prob:
                labels.append(token)
                kind = random.choices(("mask", "random", "keep"), weights=(0.8, 0.1, 0.1))[0]
                other = random.randint(2, self.cfg.vocab - 1)
                inputs.append({"mask": self.cfg.mask_id, "random": other, "keep": token}[kind])
            else:
                labels.append(-100)
                inputs.append(token)
        weights = [1.0 / (1 + abs(p - self.cfg.length // 2)) for p in random.sample(range(960), 960)]
        return {
            "input_ids": torch.tensor(inputs),
            "labels": torch.tensor(labels),
            "weight": torch.tensor(sum(weights)),
        }


class Encoder(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.embed = nn.Embedding(cfg.vocab, cfg.width)
        self.position = nn.Parameter(torch.zeros(cfg.length, cfg.width))
        layer = nn.TransformerEncoderLayer(cfg.width, cfg.heads, 2 * cfg.width, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, cfg.layers, enable_nested_tensor=False)
        self.head = nn.Linear(cfg.width, cfg.vocab)

    def forward(self, input_ids):
        return self.head(self.encoder(self.embed(input_ids) + self.position))


def train_step(model, batch, optimizer):
    logits = model(batch["input_ids"])
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), reduction="none")
    loss = (loss.view_as(batch["labels"]).sum(1) * batch["weight"]).sum() / batch["weight"].sum() / 8
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss.detach()


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=200)
    opts = ap.parse_args()
    torch.manual_seed(0)
    random.seed(0)
    torch.set_num_threads(1)
    cfg = Config()
    data = MaskedTokens(cfg, 480)
    loader = DataLoader(data, cfg.batch, shuffle=True, num_workers=2, persistent_workers=True)
    model = Encoder(cfg)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4)
    for epoch in range(opts.epochs):
        for n, batch in enumerate(loader):
            loss = train_step(model, batch, optimizer)
            if n % 15 == 0:
                print(epoch, n, f"{loss:.4f}", flush=True)
