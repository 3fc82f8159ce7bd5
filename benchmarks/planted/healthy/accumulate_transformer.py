"""Small causal transformer on memory-mapped tokens."""
import argparse
import os
import tempfile

import numpy as np
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, vocab=256, width=128, length=48):
        super().__init__()
        self.tok = nn.Embedding(vocab, width)
        self.pos = nn.Embedding(length, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, vocab)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(length))

    def forward(self, x):
        h = self.tok(x) + self.pos.weight
        return self.head(self.blocks(h, mask=self.mask, is_causal=True))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=200)
    args = parser.parse_args()
    torch.manual_seed(0)
    path = os.path.join(tempfile.mkdtemp(), "tokens.bin")
    (np.cumsum(np.random.default_rng(0).integers(0, 4, 200_000)) % 256).astype(np.uint16).tofile(path)
    tokens = np.memmap(path, dtype=np.uint16, mode="r")
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    for epoch in range(args.epochs):
        for step in range(6):
            total = 0.0
            for micro in range(4):
                start = torch.randint(0, len(tokens) - 49, (8,)).numpy()
                window = torch.from_numpy(tokens[start[:, None] + np.arange(49)].astype(np.int64))
                logits = model(window[:, :-1])
                loss = nn.functional.cross_entropy(logits.flatten(0, 1), window[:, 1:].flatten()) / 4
                scaler.scale(loss).backward()
                total += loss.item()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad(set_to_none=True)
        print(f"epoch {epoch} loss {total:.4f}")


if __name__ == "__main__":
    main()
