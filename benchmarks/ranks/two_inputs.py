"""A model that is given a dict of two inputs with a flag and returns a dict; part of it is frozen and freed later."""

import torch
from torch import nn

torch.manual_seed(9)


class Both(nn.Module):
    def __init__(self):
        super().__init__()
        self.image, self.text = nn.Conv2d(1, 4, 3), nn.EmbeddingBag(30, 8)
        self.head = nn.Linear(4 * 36 + 8, 3)
        self.scale = nn.Parameter(torch.zeros(()))

    def forward(self, batch, *, scaled):
        seen = torch.relu(self.image(batch["image"])).flatten(1)
        logits = self.head(torch.cat([seen, self.text(batch["words"])], 1))
        scale = self.scale.exp()
        return {"logits": logits * scale if scaled else logits, "scale": scale, "classes": 3}


model = Both()
optimizer = torch.optim.Adam(model.parameters(), 1e-2)
images, words, labels = torch.randn(50, 1, 8, 8), torch.randint(0, 30, (50, 5)), torch.randint(0, 3, (50,))
for step in range(12):
    model.image.requires_grad_(step >= 6)
    part = torch.randperm(50)[:15]
    out = model({"image": images[part], "words": words[part]}, scaled=step % 2 == 0)
    assert out["classes"] == 3
    loss = nn.functional.cross_entropy(out["logits"], labels[part]) + 0.1 * (out["scale"] - 2) ** 2
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"{step} {loss.item():.6f} {out['scale'].item():.6f}")
