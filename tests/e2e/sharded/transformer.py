"""Blocks in a ModuleList, tied weights, groups, a schedule, clipping, validation, and a checkpoint to go on from."""

import sys
from pathlib import Path

import torch
from torch import nn

torch.manual_seed(1)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
        self.inner = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.1))

    def forward(self, x, mask):
        y = self.before(x)
        x = x + self.attention(y, y, y, attn_mask=mask, need_weights=False)[0]
        return x + self.inner(self.between(x))


class Model(nn.Module):
    def __init__(self, tokens=96, width=32, length=12):
        super().__init__()
        self.embedding = nn.Embedding(tokens, width)
        self.places = nn.Parameter(torch.randn(length, width) * 0.02)
        self.blocks = nn.ModuleList(Block(width) for _ in range(4))
        self.last = nn.LayerNorm(width)
        self.head = nn.Linear(width, tokens, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens):
        length = tokens.shape[1]
        mask = torch.full((length, length), -torch.inf).triu(1)
        x = self.embedding(tokens) + self.places[:length]
        for block in self.blocks:
            x = block(x, mask)
        return self.head(self.last(x))


model = Model()
decayed = [one for one in model.parameters() if one.dim() > 1]
others = [one for one in model.parameters() if one.dim() < 2]
optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0}], 3e-3)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1, (step + 1) / 10) * 0.99**step)
data = torch.randint(0, 96, (64, 13), generator=torch.Generator().manual_seed(3)).cumsum(1) % 96
first = 0
if Path("checkpoint.pt").exists():
    kept = torch.load("checkpoint.pt", weights_only=True)
    model.load_state_dict(kept["model"])
    optimizer.load_state_dict(kept["optimizer"])
    schedule.load_state_dict(kept["schedule"])
    first = kept["step"]
for step in range(first, int(sys.argv[1]) if len(sys.argv) > 1 and sys.argv[1].isdigit() else 60):
    torch.manual_seed(step)
    rows = data[torch.randperm(56)[:8]]
    logits = model(rows[:, :-1])
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    schedule.step()
    print(f"{step} {loss.item():.5f} {norm.item():.4f}")
    if step % 10 == 9:
        model.eval()
        with torch.no_grad():
            held = data[56:]
            print(f"  {nn.functional.cross_entropy(model(held[:, :-1]).flatten(0, 1), held[:, 1:].flatten()):.5f}")
        model.train()
    if step == 29:
        kept = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save({**kept, "schedule": schedule.state_dict(), "step": step + 1}, "half.pt")
