"""Route customer messages to one of 24 queues with a small transformer encoder."""
import argparse
import json
import random
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

PAD, CLS, UNK = 0, 1, 2


def write_messages(n, n_intents, seed):
    """Most messages are a line or two, a few customers paste a whole e-mail thread."""
    rnd = random.Random(seed)
    cues = random.Random(0)
    keywords = [[f"k{cues.randrange(900)}" for _ in range(12)] for _ in range(n_intents)]
    rows = []
    for _ in range(n):
        y = rnd.randrange(n_intents)
        length = min(int(rnd.lognormvariate(2.9, 0.5)) + 4, 60) if rnd.random() < 0.995 else rnd.randint(100, 120)
        words = [rnd.choice(keywords[y]) if rnd.random() < 0.25 else f"w{int(rnd.paretovariate(0.8)) % 3000}"
                 for _ in range(length)]
        rows.append({"text": " ".join(words), "intent": y})
    return rows


class Messages(Dataset):
    def __init__(self, rows, vocab, max_len):
        self.ids = [torch.tensor([CLS] + [vocab.get(w, UNK) for w in r["text"].split()][:max_len - 1]) for r in rows]
        self.labels = [r["intent"] for r in rows]

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return self.ids[i], self.labels[i]


class Collator:
    def __init__(self, max_len):
        self.max_len = max_len

    def __call__(self, batch):
        ids, labels = zip(*batch)
        out = torch.full((len(ids), self.max_len), PAD)  # <<
        for row, seq in zip(out, ids):
            row[:len(seq)] = seq
        return out, torch.tensor(labels)


class Router(nn.Module):
    def __init__(self, n_vocab, n_out, max_len, dim=64, depth=2, heads=4):
        super().__init__()
        self.tok = nn.Embedding(n_vocab, dim, padding_idx=PAD)
        self.pos = nn.Parameter(torch.randn(max_len, dim) * 0.02)
        layer = nn.TransformerEncoderLayer(dim, heads, 2 * dim, dropout=0.1, batch_first=True, norm_first=True)
        self.enc = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.out = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, n_out))

    def forward(self, ids):
        x = self.tok(ids) + self.pos[:ids.size(1)]
        x = self.enc(x, src_key_padding_mask=ids == PAD)
        return self.out(x[:, 0])


def main(cfg):
    torch.manual_seed(cfg.seed)
    train_rows = write_messages(cfg.train_size, 24, seed=1)
    test_rows = write_messages(600, 24, seed=2)
    vocab = {"<pad>": PAD, "<cls>": CLS, "<unk>": UNK}
    for r in train_rows:
        for w in r["text"].split():
            vocab.setdefault(w, len(vocab))

    collate = Collator(cfg.max_len)  # <<
    train = DataLoader(Messages(train_rows, vocab, cfg.max_len), cfg.batch_size, shuffle=True, collate_fn=collate)
    test = DataLoader(Messages(test_rows, vocab, cfg.max_len), 60, collate_fn=collate)

    model = Router(len(vocab), 24, cfg.max_len)
    opt = torch.optim.AdamW(model.parameters(), lr=cfg.lr)
    warmup = torch.optim.lr_scheduler.LinearLR(opt, 0.1, 1.0, 50)
    for epoch in range(cfg.epochs):
        model.train()
        t0, n, total = time.time(), 0, 0.0
        for ids, y in train:
            loss = F.cross_entropy(model(ids), y, label_smoothing=0.05)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            warmup.step()
            n += 1
            total += loss.item()
        model.eval()
        with torch.no_grad():
            correct = sum((model(ids).argmax(1) == y).sum().item() for ids, y in test)
        print(json.dumps({"epoch": epoch, "loss": round(total / n, 4), "test_acc": round(correct / len(test_rows), 4),
                          "seconds": round(time.time() - t0, 1)}), flush=True)


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--train-size", type=int, default=3600)
    ap.add_argument("--epochs", type=int, default=4)
    ap.add_argument("--batch-size", type=int, default=32)
    ap.add_argument("--max-len", type=int, default=128)
    ap.add_argument("--lr", type=float, default=1e-3)
    ap.add_argument("--seed", type=int, default=0)
    main(ap.parse_args())
