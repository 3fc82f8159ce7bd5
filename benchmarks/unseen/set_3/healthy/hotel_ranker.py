# Hotel ranking from search sessions: ten offers a session, one of them booked; listwise softmax.
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

HOTELS, CITIES, OFFERS, DENSE = 10_000, 300, 10, 12
SESSIONS, BATCH, EPOCHS = 60_000, 1024, 20


def sessions(seed=77):
    g = np.random.default_rng(seed)
    quality = g.normal(size=HOTELS)
    city = g.integers(0, CITIES, SESSIONS)
    offers = (city[:, None] * 66 + g.integers(0, 66, (SESSIONS, OFFERS))) % HOTELS
    dense = g.normal(size=(SESSIONS, OFFERS, DENSE)).astype(np.float32)
    u = quality[offers] + dense @ g.normal(0, 0.4, DENSE) + g.gumbel(size=(SESSIONS, OFFERS))
    return tuple(torch.from_numpy(a) for a in (city, offers, dense, u.argmax(1)))


class Ranker(nn.Module):
    def __init__(self, dim=24, width=96):
        super().__init__()
        self.hotel = nn.Embedding(HOTELS, dim)
        self.city = nn.Embedding(CITIES, dim)
        self.score = nn.Sequential(nn.Linear(2 * dim + DENSE, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, city, offers, dense):
        c = self.city(city)[:, None].expand(-1, OFFERS, -1)
        return self.score(torch.cat([self.hotel(offers), c, dense], -1)).squeeze(-1)


torch.manual_seed(77)
city, offers, dense, booked = sessions()
cut = SESSIONS - 6000
model = Ranker()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
history = {"loss": [], "acc": [], "grad": []}

for epoch in range(EPOCHS):
    model.train()
    tic = time.time()
    for i, rows in enumerate(torch.randperm(cut).split(BATCH)):
        logits = model(city[rows], offers[rows], dense[rows])
        loss = F.cross_entropy(logits, booked[rows])
        optimizer.zero_grad()
        loss.backward()
        grad = nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        history["loss"].append(loss.item())
        history["acc"].append((logits.argmax(1) == booked[rows]).float().mean().item())
        history["grad"].append(grad.item())
        if i % 20 == 0:
            print(f"{epoch}/{i} " + " ".join(f"{k} {np.mean(v[-20:]):.3f}" for k, v in history.items()))
    model.eval()
    with torch.no_grad():
        logits = model(city[cut:], offers[cut:], dense[cut:])
        rank = (logits > logits.gather(1, booked[cut:, None])).sum(1) + 1
    print(f"epoch {epoch}: MRR {(1.0 / rank).mean().item():.4f} top-3 {(rank <= 3).float().mean().item():.3f} {time.time() - tic:.1f}s")
