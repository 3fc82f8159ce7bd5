"""Masked language model pretraining on synthetic text, tiny BERT."""
import argparse
import math
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

CFG = dict(vocab=6000, dim=128, heads=4, layers=2, length=64, batch=12,
           mask_rate=0.15, lr=5e-4, warmup=30, docs=480, seed=21)
PAD, MASK, FIRST = 0, 1, 2


def build_corpus(cfg):
    g = torch.Generator().manual_seed(cfg["seed"])
    n = cfg["docs"]
    # every document wanders around a topic of neighbouring word ids
    topic = torch.randint(0, cfg["vocab"] - 400, (n, 1), generator=g)
    offset = (torch.randn(n, cfg["length"], generator=g).abs() * 60).long().clamp_(max=390)
    return (topic + offset + FIRST).clamp_(max=cfg["vocab"] - 1)


def corrupt(tokens, cfg, g):
    labels = tokens.clone()
    chosen = torch.rand(tokens.shape, generator=g) < cfg["mask_rate"]
    chosen[:, 0] = True
    labels[~chosen] = -100
    inputs = tokens.clone()
    roll = torch.rand(tokens.shape, generator=g)
    inputs[chosen & (roll < 0.8)] = MASK
    noise = torch.randint(FIRST, cfg["vocab"], tokens.shape, generator=g)
    swap = chosen & (roll > 0.9)
    inputs[swap] = noise[swap]
    return inputs, labels


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, d)
        x = x + self.proj(a)
        return x + self.mlp(self.ln2(x))


class MaskedLM(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        d = cfg["dim"]
        self.tok = nn.Embedding(cfg["vocab"], d)
        self.pos = nn.Parameter(torch.zeros(cfg["length"], d))
        self.blocks = nn.ModuleList(Block(d, cfg["heads"]) for _ in range(cfg["layers"]))
        self.transform = nn.Sequential(nn.Linear(d, d), nn.GELU(), nn.LayerNorm(d))
        self.decoder = nn.Linear(d, cfg["vocab"])
        nn.init.normal_(self.tok.weight, std=0.02)
        self.decoder.weight = self.tok.weight

    def forward(self, tokens, labels):
        x = self.tok(tokens) + self.pos
        for blk in self.blocks:
            x = blk(x)
        scores = self.decoder(self.transform(x))  # <<
        return F.cross_entropy(scores.view(-1, scores.size(-1)), labels.view(-1), ignore_index=-100)  # <<


def lr_at(step, total, cfg):
    if step < cfg["warmup"]:
        return (step + 1) / cfg["warmup"]
    frac = (step - cfg["warmup"]) / max(1, total - cfg["warmup"])
    return 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * frac))


def make_step(model, opt, sched):
    params = [p for p in model.parameters() if p.requires_grad]

    def step(inputs, labels):
        loss = model(inputs, labels)  # <<
        opt.zero_grad(set_to_none=True)
        loss.backward()  # <<
        nn.utils.clip_grad_norm_(params, 1.0)
        opt.step()
        sched.step()
        return loss.detach()

    return step


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=10)
    epochs = ap.parse_args().epochs
    torch.manual_seed(CFG["seed"])
    docs = build_corpus(CFG)
    model = MaskedLM(CFG)
    opt = torch.optim.AdamW(model.parameters(), lr=CFG["lr"], betas=(0.9, 0.98))
    per_epoch = len(docs) // CFG["batch"]
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: lr_at(s, epochs * per_epoch, CFG))
    step = make_step(model, opt, sched)
    g = torch.Generator().manual_seed(CFG["seed"] + 1)

    for epoch in range(epochs):
        t0 = time.time()
        total = torch.zeros(())
        for idx in torch.randperm(len(docs), generator=g).view(-1, CFG["batch"]):
            total += step(*corrupt(docs[idx], CFG, g))
        print(f"epoch {epoch}  mlm loss {total.item() / per_epoch:.4f}  {time.time() - t0:.2f}s")


if __name__ == "__main__":
    main()
