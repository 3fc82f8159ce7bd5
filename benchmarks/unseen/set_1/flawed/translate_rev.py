"""Toy machine translation: a transformer maps "source" to "target" sentences,
with exact-match and token accuracy of greedy translations after each epoch."""
import argparse
import math
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

PAD, BOS, EOS, FIRST = 0, 1, 2, 3
VOCAB = 800
LENGTH = 18


def parallel_corpus(n, seed):
    g = torch.Generator().manual_seed(seed)
    src = torch.randint(FIRST, VOCAB, (n, LENGTH), generator=g)
    # the target language: words map one to one, neighbours swap places
    lexicon = torch.randperm(VOCAB - FIRST, generator=torch.Generator().manual_seed(0)) + FIRST
    tgt = lexicon[src - FIRST].view(n, LENGTH // 2, 2).flip(2).reshape(n, LENGTH)
    bos = torch.full((n, 1), BOS)
    eos = torch.full((n, 1), EOS)
    return src, torch.cat([bos, tgt, eos], dim=1)


class Positions(nn.Module):
    def __init__(self, dim, longest=64):
        super().__init__()
        pos = torch.arange(longest)[:, None]
        freq = torch.exp(torch.arange(0, dim, 2) * (-math.log(10000.0) / dim))
        table = torch.zeros(longest, dim)
        table[:, 0::2] = torch.sin(pos * freq)
        table[:, 1::2] = torch.cos(pos * freq)
        self.register_buffer("table", table)

    def forward(self, x):
        return x + self.table[: x.shape[1]]


class Translator(nn.Module):
    def __init__(self, dim=128, heads=4):
        super().__init__()
        self.scale = math.sqrt(dim)
        self.src_words = nn.Embedding(VOCAB, dim)
        self.tgt_words = nn.Embedding(VOCAB, dim)
        self.positions = Positions(dim)
        enc = nn.TransformerEncoderLayer(dim, heads, 4 * dim, dropout=0.0, batch_first=True)
        dec = nn.TransformerDecoderLayer(dim, heads, 2 * dim, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(enc, 3, enable_nested_tensor=False)
        self.decoder = nn.TransformerDecoder(dec, 1)
        self.out = nn.Linear(dim, VOCAB)

    def encode(self, src):
        return self.encoder(self.positions(self.src_words(src) * self.scale))

    def decode(self, memory, tgt):
        mask = nn.Transformer.generate_square_subsequent_mask(tgt.shape[1])
        x = self.positions(self.tgt_words(tgt) * self.scale)
        return self.out(self.decoder(x, memory, tgt_mask=mask, tgt_is_causal=True))

    def forward(self, src, tgt):
        return self.decode(self.encode(src), tgt)


class Evaluator:
    def __init__(self, model, src, ref, batch=64):
        self.model = model
        self.pairs = list(zip(src.split(batch), ref.split(batch)))

    def greedy(self, src):
        ys = torch.full((len(src), 1), BOS)
        for _ in range(LENGTH + 1):
            step = self.model(src, ys)[:, -1]  # <<
            ys = torch.cat([ys, step.argmax(-1, keepdim=True)], dim=1)
        return ys

    @torch.no_grad()
    def __call__(self):
        self.model.eval()
        hits = torch.zeros(())
        count = 0
        for src, ref in self.pairs:
            hyp = self.greedy(src)  # <<
            hits += (hyp[:, 1:] == ref[:, 1:]).float().sum()
            count += ref[:, 1:].numel()
        self.model.train()
        return hits.item() / count


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=12)
    ap.add_argument("--batch", type=int, default=32)
    args = ap.parse_args()
    torch.manual_seed(31)
    src, tgt = parallel_corpus(960, seed=31)
    evaluate = Evaluator(model := Translator(), *parallel_corpus(192, seed=32))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-4, betas=(0.9, 0.98))
    g = torch.Generator().manual_seed(33)
    for epoch in range(args.epochs):
        t0 = time.time()
        total, n = torch.zeros(()), 0
        for rows in torch.randperm(len(src), generator=g).split(args.batch):
            s, t = src[rows], tgt[rows]
            logits = model(s, t[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), t[:, 1:].flatten(), label_smoothing=0.1)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            total += loss.detach()
            n += 1
        accuracy = evaluate()  # <<
        print(f"epoch {epoch}: loss {total.item() / n:.3f} accuracy {accuracy:.3f} time {time.time() - t0:.2f}s")


if __name__ == "__main__":
    main()
