"""Image captioning toy: grid features -> attention LSTM decoder, trained with scheduled sampling.

"Images" are 6x6 grids of object codes, the caption lists the objects in reading order with counts.
"""
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

PAD, BOS, EOS = 0, 1, 2
N_OBJ, MAX_COUNT = 20, 6
VOCAB = 3 + N_OBJ + MAX_COUNT
GRID, FEAT, MAX_LEN = 36, 48, 14


def make_data(n, seed):
    rng = np.random.default_rng(seed)
    codebook = rng.normal(size=(N_OBJ + 1, FEAT)).astype(np.float32)
    grids = np.full((n, GRID), N_OBJ)
    caps = np.zeros((n, MAX_LEN), np.int64)
    for i in range(n):
        words = []
        for obj in np.sort(rng.choice(N_OBJ, rng.integers(2, 6), replace=False)):
            c = int(rng.integers(1, MAX_COUNT + 1))
            free = np.flatnonzero(grids[i] == N_OBJ)
            grids[i, rng.choice(free, c, replace=False)] = obj
            words += [3 + N_OBJ + c - 1, 3 + int(obj)]
        words.append(EOS)
        caps[i, :len(words)] = words
    return torch.from_numpy(grids), torch.from_numpy(codebook), torch.from_numpy(caps)


class Decoder(nn.Module):
    def __init__(self, dim=96):
        super().__init__()
        self.feat = nn.Linear(FEAT, dim)
        self.emb = nn.Embedding(VOCAB, dim, padding_idx=PAD)
        self.cell = nn.LSTMCell(2 * dim, dim)
        self.query = nn.Linear(dim, dim)
        self.out = nn.Linear(2 * dim, VOCAB)
        self.dim = dim

    def forward(self, feats, caps, p_own):
        """p_own: probability that the decoder reads its own last word instead of the true one"""
        mem = torch.tanh(self.feat(feats))
        b = len(feats)
        h = c = feats.new_zeros(b, self.dim)
        word = torch.full((b,), BOS)
        steps = int((caps != PAD).sum(1).max())
        logits = []
        for t in range(steps):
            att = torch.bmm(mem, self.query(h).unsqueeze(2)).softmax(1)
            ctx = (att * mem).sum(1)
            h, c = self.cell(torch.cat([self.emb(word), ctx], 1), (h, c))
            step_logits = self.out(torch.cat([h, ctx], 1))
            logits.append(step_logits)
            own = step_logits.detach().argmax(1)
            word = torch.where(torch.rand(b) < p_own, own, caps[:, t])
        return torch.stack(logits, 1)


def batches(n, size):
    order = list(range(n))
    random.shuffle(order)
    for i in range(0, n - size + 1, size):
        yield order[i:i + size]


def main():
    random.seed(12)
    torch.manual_seed(12)
    grids, codebook, caps = make_data(3500, seed=12)
    model = Decoder()
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    epochs, n_train = 11, 3200
    for epoch in range(epochs):
        p_own = 0.4 * epoch / epochs
        model.train()
        total, count = 0.0, 0
        for idx in batches(n_train, 64):
            feats = codebook[grids[idx]]
            feats = feats + 0.1 * torch.randn_like(feats)
            target = caps[idx]
            logits = model(feats, target, p_own)
            loss = F.cross_entropy(logits.transpose(1, 2), target[:, :logits.shape[1]], ignore_index=PAD)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            total += loss.item()
            count += 1
        model.eval()
        with torch.no_grad():
            target = caps[n_train:]
            pred = model(codebook[grids[n_train:]], target, 1.0).argmax(-1)
            ok = (target[:, :pred.shape[1]] != PAD)
            acc = ((pred == target[:, :pred.shape[1]]) & ok).sum().item() / ok.sum().item()
        print(f"epoch {epoch:02d} p_own {p_own:.2f} loss {total / count:.4f} free running word acc {acc:.3f}")


if __name__ == "__main__":
    main()
