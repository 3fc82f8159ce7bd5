import argparse
import random

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


def make_rows(n, cities, products):
    rnd = random.Random(0)
    for _ in range(n):
        city, product = rnd.choice(cities), rnd.choice(products)
        age = rnd.gauss(40, 12)
        churn = float((len(city) * 7 + int(product[-1]) + age / 10) % 5 > 2)
        yield city, product, age, churn


class Customers(Dataset):
    def __init__(self, rows, cities, products):
        self.rows = list(rows)
        self.cities = {name: k for k, name in enumerate(cities)}
        self.products = {name: k for k, name in enumerate(products)}

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        city, product, age, churn = self.rows[i]
        city_id = self.cities[city]
        product_id = self.products[product]
        return city_id, product_id, torch.tensor([age / 100]), torch.tensor(churn)


class Wide(nn.Module):
    def __init__(self, num_cities, num_products):
        super().__init__()
        self.city = nn.Embedding(num_cities, 32)
        self.product = nn.Embedding(num_products, 32)
        self.mlp = nn.Sequential(nn.Linear(65, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 1))

    def forward(self, city, product, age):
        return self.mlp(torch.cat([self.city(city), self.product(product), age], 1)).squeeze(1)


parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=200)
args = parser.parse_args()
torch.manual_seed(7)
CITIES = [f"city-{i:05d}" for i in range(6000)]
PRODUCTS = [f"product-{i:05d}" for i in range(4000)]
dataset = Customers(make_rows(5120, CITIES, PRODUCTS), CITIES, PRODUCTS)
loader = DataLoader(dataset, batch_size=128, shuffle=True, num_workers=1, persistent_workers=True)
model = Wide(len(CITIES), len(PRODUCTS))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for epoch in range(args.epochs):
    losses = []
    for city, product, age, churn in loader:
        loss = nn.functional.binary_cross_entropy_with_logits(model(city, product, age), churn)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    print(f"epoch {epoch} train loss {sum(losses) / len(losses):.5f}")
