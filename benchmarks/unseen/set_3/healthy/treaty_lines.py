"""Translation of treaty lines: GRU encoder-decoder, batches of similar length, packed encoder input."""
import random
import time

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence
from torch.utils.data import DataLoader, Dataset, Sampler

PAD, BOS, EOS, VOCAB = 0, 1, 2, 1600


class TreatyPairs(Dataset):
    def __init__(self, n, seed):
        rng = random.Random(seed)
        self.pairs = []
        for _ in range(n):
            s = [3 + min(int(rng.expovariate(0.006)), VOCAB - 4) for _ in range(rng.randint(5, 30))]
            t = [3 + (w * 11 + 4) % (VOCAB - 3) for w in s[::-1] if w % 9]
            self.pairs.append((torch.tensor(s), torch.tensor([BOS] + t + [EOS])))

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, i):
        return self.pairs[i]


class ByLength(Sampler):
    """shuffle, sort within pools of 20 batches, shuffle the batches"""

    def __init__(self, data, batch, pool=20):
        self.lengths = [len(s) for s, _ in data.pairs]
        self.batch, self.pool = batch, pool

    def __len__(self):
        return len(self.lengths) // self.batch

    def __iter__(self):
        order = list(range(len(self.lengths)))
        random.shuffle(order)
        batches = []
        for k in range(0, len(order), self.batch * self.pool):
            part = sorted(order[k:k + self.batch * self.pool], key=self.lengths.__getitem__)
            batches += [part[j:j + self.batch] for j in range(0, len(part), self.batch)]
        random.shuffle(batches)
        return iter([b for b in batches if len(b) == self.batch])


def collate(pairs):
    pairs = sorted(pairs, key=lambda p: -len(p[0]))
    src, tgt = zip(*pairs)
    return pad_sequence(src, True, PAD), torch.tensor([len(s) for s in src]), pad_sequence(tgt, True, PAD)


class Translator(nn.Module):
    def __init__(self, dim=192):
        super().__init__()
        self.src, self.tgt = nn.Embedding(VOCAB, dim, PAD), nn.Embedding(VOCAB, dim, PAD)
        self.enc = nn.GRU(dim, dim, batch_first=True)
        self.dec = nn.GRU(dim, dim, batch_first=True)
        self.join = nn.Linear(2 * dim, dim)
        self.out = nn.Linear(dim, VOCAB)

    def forward(self, src, lens, tgt):
        packed = pack_padded_sequence(self.src(src), lens, batch_first=True)
        mem, h = self.enc(packed)
        mem, _ = pad_packed_sequence(mem, batch_first=True)
        q, _ = self.dec(self.tgt(tgt), h)
        att = (q @ mem.mT).masked_fill((src == PAD).unsqueeze(1), -1e9).softmax(-1)
        return self.out(torch.tanh(self.join(torch.cat([q, att @ mem], -1))))


def run(epochs=3):
    torch.manual_seed(0)
    random.seed(0)
    data, dev = TreatyPairs(4000, 0), TreatyPairs(320, 1)
    train = DataLoader(data, batch_sampler=ByLength(data, 32), collate_fn=collate)
    valid = DataLoader(dev, batch_sampler=ByLength(dev, 32), collate_fn=collate)
    net = Translator()
    opt = torch.optim.AdamW(net.parameters(), lr=1e-3, fused=True)
    criterion = nn.CrossEntropyLoss(ignore_index=PAD)
    for epoch in range(epochs):
        t0, tokens, total = time.time(), 0, 0.0
        for i, (src, lens, tgt) in enumerate(train, 1):
            out = net(src, lens, tgt[:, :-1])
            gold = tgt[:, 1:]
            loss = criterion(out.flatten(0, 1), gold.flatten())
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            opt.step()
            n = (gold != PAD).sum().item()
            tokens, total = tokens + n, total + loss.item() * n
            if i % 25 == 0:
                print(f"epoch {epoch} {i}/{len(train)} nll {total / tokens:.3f} {tokens / (time.time() - t0):.0f} tok/s", flush=True)
        with torch.no_grad():
            losses = [criterion(net(s, l, t[:, :-1]).flatten(0, 1), t[:, 1:].flatten()).item() for s, l, t in valid]
        print(f"epoch {epoch} valid {sum(losses) / len(losses):.3f}", flush=True)


if __name__ == "__main__":
    run()
