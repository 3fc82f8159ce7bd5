"""Connected digit recognition with CTC: a convolutional acoustic model, greedy decoding, character error rate."""
import argparse
import time

import numpy as np
import torch
import torch.nn as nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset, Sampler

SPELL = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
CHARS = "_ " + "".join(sorted(set("".join(SPELL))))
CODE = {c: i for i, c in enumerate(CHARS)}


class DigitStrings(Dataset):
    def __init__(self, n, seed, n_feat=40):
        rng = np.random.default_rng(seed)
        proto = np.random.default_rng(0).normal(0, 1, (len(CHARS), n_feat)).astype(np.float32)
        self.items = []
        for _ in range(n):
            text = " ".join(SPELL[d] for d in rng.integers(0, 10, rng.integers(14, 26)))
            dur = rng.integers(2, 6, len(text))
            frames = proto[np.repeat([CODE[c] for c in text], dur)]
            frames = frames + rng.standard_normal(frames.shape, dtype=np.float32) * 0.9
            self.items.append((torch.from_numpy(frames), text))
        self.items.sort(key=lambda it: len(it[0]))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


class Buckets(Sampler):
    """Neighbouring lengths share a batch; batches come in random order."""

    def __init__(self, n, batch):
        self.batches = torch.arange(n).split(batch)

    def __len__(self):
        return len(self.batches)

    def __iter__(self):
        for b in torch.randperm(len(self.batches)).tolist():
            yield self.batches[b].tolist()


def collate(items):
    feats, texts = zip(*items)
    targets = torch.tensor([CODE[c] for t in texts for c in t])
    return (pad_sequence(feats, batch_first=True), torch.tensor([len(f) for f in feats]),
            targets, torch.tensor([len(t) for t in texts]), texts)


class Acoustic(nn.Module):
    """Halves the frame rate, then residual convolutions with a growing view."""

    def __init__(self, n_feat=40, width=64):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv1d(n_feat, width, 5, stride=2, padding=2), nn.BatchNorm1d(width), nn.ReLU())
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Conv1d(width, width, 3, padding=d, dilation=d), nn.BatchNorm1d(width), nn.ReLU())
            for d in (1, 2))
        self.out = nn.Conv1d(width, len(CHARS), 1)

    def forward(self, x, lengths):
        x = self.stem(x.transpose(1, 2))
        for block in self.blocks:
            x = x + block(x)
        return self.out(x).transpose(1, 2).log_softmax(-1), (lengths + 1) // 2


def greedy(log_probs, lengths):
    texts = []
    for path, n in zip(log_probs.argmax(-1).tolist(), lengths.tolist()):
        out, last = [], 0
        for k in path[:n]:
            if k != last and k != 0:
                out.append(CHARS[k])
            last = k
        texts.append("".join(out))
    return texts


def edit_distance(a, b):
    row = list(range(len(b) + 1))
    for i, ca in enumerate(a, 1):
        diag, row[0] = row[0], i
        for j, cb in enumerate(b, 1):  # <<
            diag, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diag + (ca != cb))  # <<
    return row[-1]


def error_rate(hyps, refs):
    return sum(edit_distance(h, r) for h, r in zip(hyps, refs)) / sum(map(len, refs))  # <<


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--utts", type=int, default=1600)
    ap.add_argument("--epochs", type=int, default=4)
    ap.add_argument("--batch", type=int, default=16)
    ap.add_argument("--log-every", type=int, default=25)
    args = ap.parse_args()
    torch.manual_seed(0)
    data = DigitStrings(args.utts, seed=1)
    train = DataLoader(data, batch_sampler=Buckets(len(data), args.batch), collate_fn=collate)
    dev = DataLoader(DigitStrings(96, seed=2), 32, collate_fn=collate)
    model = Acoustic()
    ctc = nn.CTCLoss(zero_infinity=True)
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(args.epochs):
        t0 = time.time()
        model.train()
        for step, (x, xl, y, yl, texts) in enumerate(train, 1):
            lp, n = model(x, xl)
            loss = ctc(lp.transpose(0, 1), y, n, yl)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 10)
            opt.step()
            cer = error_rate(greedy(lp.detach(), n), texts)  # <<
            if step % args.log_every == 0:
                print(f"epoch {epoch} step {step}/{len(train)} ctc {loss.item():.3f} cer {100 * cer:.1f}%", flush=True)
        model.eval()
        hyps, refs = [], []
        with torch.no_grad():
            for x, xl, _, _, texts in dev:
                hyps += greedy(*model(x, xl))
                refs += texts
        print(f"epoch {epoch}: dev cer {100 * error_rate(hyps, refs):.2f}%  {time.time() - t0:.1f}s  e.g. {hyps[0]!r}")


if __name__ == "__main__":
    main()
