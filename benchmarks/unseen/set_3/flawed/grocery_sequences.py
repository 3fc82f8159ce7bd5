"""Next-basket GRU over grocery histories. Events stay Python objects until they are batched."""
import gc
import random
import time

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence

PRODUCTS = 2000
MAX_LEN = 20


class Purchase:
    def __init__(self, product, day, amount):
        self.product = product
        self.day = day
        self.amount = amount


class Customer:
    def __init__(self, ident, purchases):
        self.ident = ident
        self.purchases = purchases


def shop(n_customers, rng):
    people = []
    for c in range(n_customers):
        favourite = rng.randrange(PRODUCTS)
        day, purchases = 0, []
        for _ in range(rng.randint(12, 24)):
            day += rng.randint(0, 9)
            if rng.random() < 0.6:
                product = (favourite + rng.randint(0, 15)) % PRODUCTS
            else:
                product = rng.randrange(PRODUCTS)
            purchases.append(Purchase(product, day, rng.randint(1, 4)))
        people.append(Customer(c, purchases))
    return people


class BasketGRU(nn.Module):
    def __init__(self, dim=48, hidden=96):
        super().__init__()
        self.product = nn.Embedding(PRODUCTS + 1, dim, padding_idx=PRODUCTS)
        self.gap = nn.Embedding(12, 8)
        self.rnn = nn.GRU(dim + 8, hidden, batch_first=True)
        self.out = nn.Linear(hidden, dim)

    def forward(self, product, gap):
        h, _ = self.rnn(torch.cat([self.product(product), self.gap(gap)], -1))
        return self.out(h) @ self.product.weight[:PRODUCTS].T


def to_batch(customers):
    products, gaps = [], []
    for c in customers:
        events = c.purchases[-MAX_LEN - 1:]
        products.append(torch.tensor([e.product for e in events]))
        gaps.append(torch.tensor([0] + [min(b.day - a.day, 11) for a, b in zip(events, events[1:])]))
    product = pad_sequence(products, batch_first=True, padding_value=PRODUCTS)
    gap = pad_sequence(gaps, batch_first=True)
    target = product[:, 1:].clone()
    target[target == PRODUCTS] = -100
    return product[:, :-1], gap[:, :-1], target


def free_memory():
    gc.collect()  # <<
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def main():
    rng = random.Random(12)
    torch.manual_seed(12)
    customers = shop(6_000, rng)
    train, test = customers[:5_400], customers[5_400:]
    model = BasketGRU()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(3):
        model.train()
        rng.shuffle(train)
        tic, total, steps = time.time(), 0.0, 0
        for k in range(0, len(train), 64):
            product, gap, target = to_batch(train[k:k + 64])
            logits = model(product, gap)
            loss = criterion(logits.flatten(0, 1), target.flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
            steps += 1
            del logits, loss
            free_memory()  # <<
            if steps % 25 == 0:
                print(f"epoch {epoch} step {steps} loss {total / steps:.4f}")
        model.eval()
        with torch.no_grad():
            product, gap, target = to_batch(test)
            last = (target != -100).sum(1) - 1
            rows = torch.arange(len(last))
            top = model(product, gap)[rows, last].topk(20).indices
            hit = (top == target[rows, last][:, None]).any(1).float().mean().item()
        print(f"epoch {epoch}: loss {total / steps:.4f} recall@20 {hit:.3f} ({time.time() - tic:.1f}s)")


if __name__ == "__main__":
    main()
