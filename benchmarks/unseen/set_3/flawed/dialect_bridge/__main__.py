import time

import torch
from torch import nn
from torch.utils.data import DataLoader

from .corpus import PAD, VOCAB, collate, make_pairs
from .evaluate import bleu2
from .seq2seq import Seq2Seq


def main(epochs=5):
    torch.manual_seed(0)
    train = DataLoader(make_pairs(4000, 0), batch_size=50, shuffle=True, collate_fn=collate)
    valid = make_pairs(500, 1)
    model = Seq2Seq()
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    lossf = nn.CrossEntropyLoss(ignore_index=PAD)
    for epoch in range(epochs):
        t0, tot = time.time(), 0.0
        for i, (src, lens, tgt) in enumerate(train, 1):
            logits = model(src, lens, tgt[:, :-1])
            loss = lossf(logits.reshape(-1, VOCAB), tgt[:, 1:].reshape(-1))
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            tot += loss.item()
            if i % 40 == 0:
                print(f"| epoch {epoch} | {i:4d} | loss {tot / i:.3f} | {1000 * (time.time() - t0) / i:.0f} ms/batch", flush=True)
        score = bleu2(model, valid)  # <<
        print(f"| end of epoch {epoch} | bigram {score:.2f} | {time.time() - t0:.1f}s", flush=True)


main()
