"""Dense passage retrieval with in-batch negatives plus one mined hard negative.

The hard negatives are refreshed with the current encoder before every epoch but the first.
"""
import argparse
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

VOCAB = 4000


def build_collection(n_passages, n_questions, seed):
    rng = np.random.default_rng(seed)
    topics = rng.integers(0, VOCAB - 300, n_passages)
    passages = (topics[:, None] + rng.integers(0, 120, (n_passages, 32))) % (VOCAB - 1) + 1
    gold = rng.integers(0, n_passages, n_questions)
    picks = rng.integers(0, 32, (n_questions, 10))
    questions = passages[gold[:, None], picks]
    noise = rng.random(questions.shape) < 0.2
    questions = np.where(noise, rng.integers(1, VOCAB, questions.shape), questions)
    return torch.from_numpy(passages), torch.from_numpy(questions), torch.from_numpy(gold)


class Encoder(nn.Module):
    def __init__(self, dim=96, heads=4, layers=2):
        super().__init__()
        self.words = nn.Embedding(VOCAB, dim)
        self.places = nn.Parameter(torch.randn(64, dim) * 0.02)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(dim, heads, 2 * dim, dropout=0.0, batch_first=True)
            for _ in range(layers))

    def forward(self, ids):
        x = self.words(ids) + self.places[: ids.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return F.normalize(x.mean(1), dim=-1)


@torch.no_grad()
def embed(encoder, texts):
    encoder.eval()
    vectors = [encoder(t.unsqueeze(0))[0] for t in texts]  # <<
    encoder.train()
    return torch.stack(vectors)


def mine(encoder, questions, passages, gold, depth=30):
    """For every question a wrong passage out of its `depth` best ranked ones."""
    p = embed(encoder, passages)  # <<
    q = embed(encoder, questions)  # <<
    best = (q @ p.t()).topk(depth, dim=1).indices
    wrong = best != gold[:, None]
    first = wrong.float().cumsum(1).argmax(1)
    rank = torch.minimum(first, torch.randint(0, depth, first.shape))
    chosen = best.gather(1, rank[:, None])[:, 0]
    fallback = best.gather(1, wrong.float().argmax(1, keepdim=True))[:, 0]
    return torch.where(chosen == gold, fallback, chosen)


def contrastive(q, pos, neg, same, temperature=0.07):
    keys = torch.cat([pos, neg])
    scores = q @ keys.t() / temperature
    scores = scores.masked_fill(same, -1e4)
    return F.cross_entropy(scores, torch.arange(len(q)))


def train_epoch(encoder, optimizer, questions, passages, gold, hard, batch):
    losses = []
    for rows in torch.randperm(len(questions)).split(batch):
        g = gold[rows]
        q = encoder(questions[rows])
        keys = encoder(torch.cat([passages[g], passages[hard[rows]]]))
        pos, neg = keys.chunk(2)
        same = g[:, None] == torch.cat([g, hard[rows]])[None]
        same[torch.arange(len(rows)), torch.arange(len(rows))] = False
        loss = contrastive(q, pos, neg, same)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses).mean().item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=16)
    ap.add_argument("--batch", type=int, default=24)
    args = ap.parse_args()
    torch.manual_seed(12)
    passages, questions, gold = build_collection(1500, 960, seed=12)
    encoder = Encoder()
    optimizer = torch.optim.AdamW(encoder.parameters(), lr=4e-4)
    hard = torch.randint(0, len(passages), gold.shape)
    for epoch in range(args.epochs):
        t0 = time.time()
        if epoch > 0:
            hard = mine(encoder, questions, passages, gold)  # <<
        loss = train_epoch(encoder, optimizer, questions, passages, gold, hard, args.batch)
        print(f"epoch {epoch} | contrastive {loss:.4f} | {time.time() - t0:.2f} s")


if __name__ == "__main__":
    main()
