#!/usr/bin/env python3
"""nano-sized GPT on generated recipes: gradient accumulation, warm-up + cosine, clipping, a sample every epoch."""
import math
import random
import time

import torch
import torch.nn as nn
from torch.nn import functional as F

# ---------------------------------------------------------------- config
context, n_layer, n_head, n_embd = 64, 4, 4, 96
micro_batch, accumulate = 12, 2
lr_max, lr_min, warmup = 2e-3, 2e-4, 40
updates_per_epoch, epochs = 90, 5
torch.manual_seed(1337)

# ---------------------------------------------------------------- text
rnd = random.Random(9)
FOOD = "onion garlic carrot rice lentil tomato butter flour egg milk apple salmon basil ginger lemon potato".split()
VERB = "chop fry boil bake whisk fold season rest stir simmer roast grate".split()
TOOL = "pan oven bowl pot tray wok".split()


def recipe():
    a, b, c = rnd.sample(FOOD, 3)
    lines = [f"{a} and {b} with {c}\n"]
    for _ in range(rnd.randint(3, 6)):
        lines.append(f"{rnd.choice(VERB)} the {rnd.choice((a, b, c))} in the {rnd.choice(TOOL)} for "
                     f"{rnd.randint(1, 40)} minutes.\n")
    return "".join(lines) + "serve.\n\n"


text = "".join(recipe() for _ in range(6000))
chars = sorted(set(text))
stoi = {c: i for i, c in enumerate(chars)}
data = torch.tensor([stoi[c] for c in text])
n_train = int(0.95 * len(data))


def get_batch(split):
    lo, hi = (0, n_train) if split == "train" else (n_train, len(data))
    at = torch.randint(lo, hi - context - 1, (micro_batch,))
    x = data[at[:, None] + torch.arange(context + 1)]
    return x[:, :-1], x[:, 1:]


# ---------------------------------------------------------------- model
class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(n_embd, 3 * n_embd), nn.Linear(n_embd, n_embd)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.qkv(x).view(B, T, 3, n_head, C // n_head).permute(2, 0, 3, 1, 4)
        return self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(B, T, C))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.ln2, self.attn = nn.LayerNorm(n_embd), nn.LayerNorm(n_embd), Attention()
        self.mlp = nn.Sequential(nn.Linear(n_embd, 4 * n_embd), nn.GELU(), nn.Linear(4 * n_embd, n_embd))

    def forward(self, x):
        x = x + self.attn(self.ln1(x))
        return x + self.mlp(self.ln2(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(len(chars), n_embd), nn.Embedding(context, n_embd)
        self.blocks = nn.ModuleList(Block() for _ in range(n_layer))
        self.ln = nn.LayerNorm(n_embd)
        self.head = nn.Linear(n_embd, len(chars), bias=False)

    def forward(self, idx, targets=None):
        x = self.wte(idx) + self.wpe.weight[:idx.size(1)]
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.ln(x))
        loss = None if targets is None else F.cross_entropy(logits.view(-1, len(chars)), targets.reshape(-1))
        return logits, loss

    @torch.no_grad()
    def write(self, n, temperature=0.8):
        idx = torch.tensor([[stoi["\n"]]])
        for _ in range(n):
            logits, _ = self(idx[:, -context:])
            idx = torch.cat([idx, torch.multinomial(F.softmax(logits[:, -1] / temperature, -1), 1)], 1)
        return "".join(chars[i] for i in idx[0].tolist())


def lr_at(i, total=updates_per_epoch * epochs):
    if i < warmup:
        return lr_max * (i + 1) / warmup
    return lr_min + 0.5 * (lr_max - lr_min) * (1 + math.cos(math.pi * (i - warmup) / (total - warmup)))


model = GPT()
opt = torch.optim.AdamW(model.parameters(), lr=lr_max, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
print(f"{len(text):,} characters, {len(chars)} symbols, {sum(p.numel() for p in model.parameters()):,} weights")
for epoch in range(epochs):
    t0, mean_loss = time.time(), 0.0
    for i in range(updates_per_epoch):
        for g in opt.param_groups:
            g["lr"] = lr_at(epoch * updates_per_epoch + i)
        opt.zero_grad(set_to_none=True)
        for _ in range(accumulate):
            _, loss = model(*get_batch("train"))
            (loss / accumulate).backward()
            mean_loss += loss.item() / accumulate
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0).item()
        opt.step()
        if i % 45 == 0:
            print(f"  update {i}: loss {loss.item():.3f} grad norm {norm:.2f} lr {opt.param_groups[0]['lr']:.2e}")
    model.eval()
    with torch.no_grad():
        val = sum(model(*get_batch("val"))[1].item() for _ in range(6)) / 6
    print(f"epoch {epoch}: train {mean_loss / updates_per_epoch:.3f} val {val:.3f} {time.time() - t0:.1f}s", flush=True)
    print("   " + repr(model.write(80)))
    model.train()
