"""FedAvg over bakeries that forecast tomorrow's sales without sharing their tills."""
import copy
import random
import time

import numpy as np
import torch
from torch import nn

PRODUCTS, PAST = 16, 28


def tills(bakeries, days, seed):
    g = np.random.default_rng(seed)
    week = g.uniform(0.6, 1.4, (7, PRODUCTS))
    shops = []
    for _ in range(bakeries):
        level = g.uniform(10, 80, PRODUCTS)
        drift = np.cumsum(g.normal(0, 0.02, (days, PRODUCTS)), 0)
        rows = level * week[np.arange(days) % 7] * np.exp(drift * 0.3)
        rows = g.poisson(np.maximum(rows, 0.1)) / level
        shops.append(torch.tensor(rows, dtype=torch.float32))
    return shops


class Forecaster(nn.Module):
    def __init__(self, hidden=80):
        super().__init__()
        self.rnn = nn.GRU(PRODUCTS, hidden, batch_first=True)
        self.out = nn.Linear(hidden, PRODUCTS)

    def forward(self, x):
        h, _ = self.rnn(x)
        return self.out(h[:, -1])


class Bakery:
    def __init__(self, name, sales):
        self.name, self.sales = name, sales
        self.cut = len(sales) - 60

    def windows(self, start):
        idx = start[:, None] + torch.arange(PAST)
        return self.sales[idx], self.sales[start + PAST]

    def improve(self, model, steps, batch=48):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        losses = []
        for _ in range(steps):
            x, y = self.windows(torch.randint(0, self.cut - PAST, (batch,)))
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.item())
        return np.mean(losses)

    @torch.no_grad()
    def error(self, model):
        x, y = self.windows(torch.arange(self.cut - PAST, len(self.sales) - PAST))
        return (model(x) - y).abs().mean().item()


def weighted_mean(states, weights):
    share = [w / sum(weights) for w in weights]
    return {k: torch.stack([s[k] * a for s, a in zip(states, share)]).sum(0) for k in states[0]}


def main(rounds=20, bakeries=24, per_round=8, local_steps=12):
    random.seed(0)
    torch.manual_seed(0)
    shops = [Bakery(f"bakery-{i:02d}", s) for i, s in enumerate(tills(bakeries, 700, 0))]
    model = Forecaster()
    for r in range(rounds):
        tic = time.time()
        chosen = random.sample(shops, per_round)
        states, losses = [], []
        for shop in chosen:
            local = copy.deepcopy(model)
            losses.append(shop.improve(local, local_steps))
            states.append(local.state_dict())
            print(f"   {shop.name} {losses[-1]:.4f}")
        model.load_state_dict(weighted_mean(states, [len(s.sales) for s in chosen]))
        mae = np.mean([s.error(model) for s in shops])
        print(f"round {r}: loss {np.mean(losses):.4f} MAE {mae:.4f} {time.time() - tic:.2f}s")


if __name__ == "__main__":
    main()
