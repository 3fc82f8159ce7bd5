"""Next-character model over shards of text that two workers share out among themselves."""
import argparse

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Books(IterableDataset):
    def __init__(self, shards, per_shard, length=48):
        self.shards, self.per_shard, self.length = shards, per_shard, length

    def __iter__(self):
        info = get_worker_info()
        first, every = (info.id, info.num_workers) if info else (0, 1)
        for shard in range(first, self.shards, every):
            g = torch.Generator().manual_seed(shard)
            text = torch.randint(0, 3, (self.per_shard * self.length + 1,), generator=g).cumsum(0) % 96
            for k in torch.randperm(self.per_shard, generator=g).tolist():
                piece = text[k * self.length : (k + 1) * self.length + 1]
                yield piece[:-1], piece[1:]


class CharNet(nn.Module):
    def __init__(self, width=192):
        super().__init__()
        self.embed = nn.Embedding(96, width)
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True)
        self.body = nn.TransformerEncoder(layer, 2)
        self.out = nn.Linear(width, 96)

    def forward(self, x):
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        return self.out(self.body(self.embed(x), mask=mask, is_causal=True))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=100)
    args = parser.parse_args()
    torch.manual_seed(0)
    loader = DataLoader(Books(8, 100), batch_size=16, num_workers=2, persistent_workers=True)
    model = CharNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, fused=True)
    for epoch in range(args.epochs):
        total, steps = 0.0, 0
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total, steps = total + loss.item(), steps + 1
        print(f"epoch {epoch} loss {total / steps:.4f}")


if __name__ == "__main__":
    main()
