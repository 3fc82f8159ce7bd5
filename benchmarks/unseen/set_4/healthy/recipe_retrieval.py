"""Two tower retrieval: ingredient list <-> photo embedding. InfoNCE with in-batch negatives plus a queue of
old photo embeddings (MoCo style). Recall@10 over all recipes after each epoch, best weights go to disk."""
import json
import os
import tempfile

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

INGREDIENTS, PHOTO = 600, 512
QUEUE, DIM, TAU = 4096, 96, 0.07


class Recipes(Dataset):
    def __init__(self, n, seed):
        rng = np.random.default_rng(seed)
        proj = np.random.default_rng(0).normal(size=(INGREDIENTS, PHOTO)).astype(np.float32) / 3
        self.ingr, photos = [], []
        for _ in range(n):
            ids = rng.choice(INGREDIENTS, rng.integers(4, 15), replace=False)
            self.ingr.append(torch.from_numpy(ids + 1))
            photos.append(proj[ids].sum(0) + rng.normal(size=PHOTO).astype(np.float32))
        self.photo = torch.from_numpy(np.stack(photos).astype(np.float32))

    def __len__(self):
        return len(self.ingr)

    def __getitem__(self, i):
        return self.ingr[i], self.photo[i]


def collate(items):
    ingr, photo = zip(*items)
    return pad_sequence(ingr, batch_first=True), torch.stack(photo)


class Towers(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(INGREDIENTS + 1, DIM, padding_idx=0)
        self.text = nn.Sequential(nn.Linear(DIM, 256), nn.ReLU(), nn.Linear(256, DIM))
        self.photo = nn.Sequential(nn.Linear(PHOTO, 768), nn.ReLU(), nn.Linear(768, 768), nn.ReLU(), nn.Linear(768, DIM))

    def embed_text(self, ids):
        n = (ids > 0).sum(1, keepdim=True)
        return F.normalize(self.text(self.emb(ids).sum(1) / n.sqrt()), dim=1)

    def embed_photo(self, x):
        return F.normalize(self.photo(x), dim=1)


class PhotoQueue:
    def __init__(self):
        self.buf = F.normalize(torch.randn(QUEUE, DIM), dim=1)
        self.pos = 0

    @torch.no_grad()
    def push(self, z):
        rows = (self.pos + torch.arange(len(z))) % QUEUE
        self.buf[rows] = z
        self.pos = (self.pos + len(z)) % QUEUE


@torch.no_grad()
def recall_at_10(model, data):
    ids = pad_sequence(data.ingr, batch_first=True)
    sims = model.embed_text(ids) @ model.embed_photo(data.photo).T
    top = sims.topk(10, dim=1).indices
    return (top == torch.arange(len(ids))[:, None]).any(1).float().mean().item()


def main(folder):
    torch.manual_seed(70)
    train, val = Recipes(6400, 1), Recipes(500, 2)
    loader = DataLoader(train, batch_size=128, shuffle=True, drop_last=True, collate_fn=collate)
    model, queue = Towers(), PhotoQueue()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    best, history = -1.0, []
    for epoch in range(18):
        model.train()
        loss_sum = 0.0
        for ids, photo in loader:
            t, p = model.embed_text(ids), model.embed_photo(photo)
            target = torch.arange(len(t))
            t2p = torch.cat([t @ p.T, t @ queue.buf.T], 1) / TAU
            loss = 0.5 * (F.cross_entropy(t2p, target) + F.cross_entropy(p @ t.T / TAU, target))
            opt.zero_grad()
            loss.backward()
            opt.step()
            queue.push(p)
            loss_sum += loss.item()
        model.eval()
        recall = recall_at_10(model, val)
        history.append({"epoch": epoch, "loss": loss_sum / len(loader), "recall@10": recall})
        with open(os.path.join(folder, "history.json"), "w") as f:
            json.dump(history, f, indent=1)
        if recall > best:
            best = recall
            torch.save(model.state_dict(), os.path.join(folder, "best.pt"))
        print(f"epoch {epoch}: loss {loss_sum / len(loader):.4f} recall@10 {recall:.3f}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as out:
        main(out)
