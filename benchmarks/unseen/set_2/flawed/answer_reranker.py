"""Answer re-ranking for a help-desk bot: dual GRU encoders, in-batch negatives."""
import gc
import logging
import random
import sys
import time

import torch
from torch import nn
import torch.nn.functional as F

logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
log = logging.getLogger("reranker")


class Turn:
    """One question with its accepted answer, tokens kept as strings for error analysis."""

    def __init__(self, topic, question, answer):
        self.topic = topic
        self.question = question
        self.answer = answer
        self.meta = {"source": "forum", "tags": [f"t{topic}", "accepted"]}


def dialogues(n, seed):
    rnd = random.Random(seed)
    world = random.Random(1)
    topics = [[f"term{world.randrange(4000)}" for _ in range(20)] for _ in range(200)]
    common = [f"c{i}" for i in range(400)]

    def utter(topic, lo, hi):
        return [rnd.choice(topics[topic]) if rnd.random() < 0.3 else rnd.choice(common)
                for _ in range(rnd.randint(lo, hi))]

    out = []
    for _ in range(n):
        t = rnd.randrange(200)
        out.append(Turn(t, utter(t, 6, 14), utter(t, 10, 24)))
    return out


class Vocab:
    def __init__(self, turns):
        self.index = {"<pad>": 0}
        for t in turns:
            for w in t.question + t.answer:
                self.index.setdefault(w, len(self.index))

    def batch(self, utterances):
        n = max(map(len, utterances))
        return torch.tensor([[self.index.get(w, 0) for w in u] + [0] * (n - len(u)) for u in utterances])


class Encoder(nn.Module):
    def __init__(self, n_words, dim=96, out=160):
        super().__init__()
        self.emb = nn.Embedding(n_words, dim, padding_idx=0)
        self.gru = nn.GRU(dim, out, batch_first=True)

    def forward(self, ids):
        y, _ = self.gru(self.emb(ids))
        mask = (ids != 0).unsqueeze(-1)
        return F.normalize((y * mask).sum(1) / mask.sum(1).clamp(min=1), dim=1)


class DualEncoder(nn.Module):
    def __init__(self, n_words):
        super().__init__()
        self.q, self.a = Encoder(n_words), Encoder(n_words)
        self.scale = nn.Parameter(torch.tensor(10.0))

    def forward(self, q, a):
        return self.scale * self.q(q) @ self.a(a).t()


def train_one_epoch(model, opt, vocab, turns, batch_size):
    model.train()
    order = random.sample(range(len(turns)), len(turns))
    total, n = 0.0, 0
    for at in range(0, len(order) - batch_size + 1, batch_size):
        chunk = [turns[i] for i in order[at:at + batch_size]]
        q, a = vocab.batch([t.question for t in chunk]), vocab.batch([t.answer for t in chunk])
        logits = model(q, a)
        target = torch.arange(len(chunk))
        loss = (F.cross_entropy(logits, target) + F.cross_entropy(logits.t(), target)) / 2
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        total, n = total + loss.item(), n + 1
        del q, a, logits, loss
        gc.collect()  # <<
    return total / n


@torch.no_grad()
def mrr(model, vocab, turns, pool=100):
    model.eval()
    ranks = []
    for at in range(0, len(turns), pool):
        chunk = turns[at:at + pool]
        s = model(vocab.batch([t.question for t in chunk]), vocab.batch([t.answer for t in chunk]))
        ranks.append(1.0 / ((s > s.diag()[:, None]).sum(1) + 1).float())
    return torch.cat(ranks).mean().item()


def main():
    random.seed(0)
    torch.manual_seed(0)
    turns, held = dialogues(5200, 2), dialogues(1000, 3)
    vocab = Vocab(turns)
    model = DualEncoder(len(vocab.index))
    opt = torch.optim.Adam(model.parameters(), 2e-3)
    log.info("%d dialogues, %d words", len(turns), len(vocab.index))
    for epoch in range(3):
        t0 = time.time()
        loss = train_one_epoch(model, opt, vocab, turns, 64)
        log.info("epoch %d  loss %.4f  MRR@100 %.4f  %.1fs", epoch, loss, mrr(model, vocab, held), time.time() - t0)


if __name__ == "__main__":
    main()
