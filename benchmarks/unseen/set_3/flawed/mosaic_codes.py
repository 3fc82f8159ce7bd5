"""Deep hashing of mosaic descriptors: 32-bit codes, pairwise likelihood loss, mean average precision."""
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

BITS, CLASSES, DIM = 32, 10, 512


def descriptors(n, seed):
    g = torch.Generator().manual_seed(seed)
    centres = torch.randn(CLASSES, DIM, generator=torch.Generator().manual_seed(77))
    y = torch.randint(0, CLASSES, (n,), generator=g)
    return 0.16 * centres[y] + torch.randn(n, DIM, generator=g), y


class HashNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(DIM, 1024), nn.ReLU(), nn.Dropout(0.3), nn.Linear(1024, 1024), nn.ReLU())
        self.code = nn.Linear(1024, BITS)

    def forward(self, x):
        return torch.tanh(self.code(self.body(x)))


def dpsh_loss(u, y, quant=0.1):
    theta = 0.5 * u @ u.T
    same = (y[:, None] == y[None]).float()
    likelihood = F.softplus(theta) - same * theta
    return likelihood.mean() + quant * ((u - u.sign()) ** 2).mean()


def encode(net, x):
    net.eval()
    with torch.no_grad():
        return torch.cat([net(c).sign() for c in x.split(500)])


def mean_average_precision(q_codes, q_labels, db_codes, db_labels):
    aps = []
    for code, label in zip(q_codes, q_labels):
        hamming = 0.5 * (BITS - db_codes @ code)
        order = torch.argsort(hamming, stable=True)
        hits, ap = 0, 0.0
        for rank, j in enumerate(order, 1):  # <<
            if db_labels[j] == label:  # <<
                hits += 1
                ap += hits / rank
        aps.append(ap / max(hits, 1))
    return sum(aps) / len(aps)


class Experiment:
    def __init__(self):
        torch.manual_seed(4)
        self.x, self.y = descriptors(6000, 0)
        self.db_x, self.db_y = descriptors(2000, 1)
        self.q_x, self.q_y = descriptors(150, 2)
        self.net = HashNet()
        self.opt = torch.optim.RMSprop(self.net.parameters(), lr=1e-4, weight_decay=1e-5)

    def train_epoch(self):
        self.net.train()
        total = 0.0
        for sel in torch.randperm(len(self.x)).split(64):
            loss = dpsh_loss(self.net(self.x[sel]), self.y[sel])
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            total += loss.item() * len(sel)
        return total / len(self.x)

    def test(self):
        q, db = encode(self.net, self.q_x), encode(self.net, self.db_x)
        return mean_average_precision(q, self.q_y, db, self.db_y)  # <<

    def run(self, epochs=7):
        for e in range(1, epochs + 1):
            t0 = time.time()
            loss = self.train_epoch()
            t1 = time.time()
            score = self.test()  # <<
            print(f"epoch {e}/{epochs} loss {loss:.4f} MAP {score:.4f} (train {t1 - t0:.1f}s, all {time.time() - t0:.1f}s)", flush=True)


Experiment().run()
