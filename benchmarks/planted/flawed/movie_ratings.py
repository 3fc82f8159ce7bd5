import argparse

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


class Ratings(Dataset):
    def __init__(self, users, items, n):
        g = torch.Generator().manual_seed(0)
        self.user = torch.randint(users, (n,), generator=g)
        self.item = torch.randint(items, (n,), generator=g)
        self.rating = ((self.user * 7 + self.item * 3) % 5 + 1).float()

    def __len__(self):
        return len(self.rating)

    def __getitem__(self, i):
        return {"user": self.user[i], "item": self.item[i], "rating": self.rating[i]}  # <<


class Factors(nn.Module):
    def __init__(self, users, items, dim=32):
        super().__init__()
        self.users = nn.Embedding(users, dim)
        self.items = nn.Embedding(items, dim)
        self.mlp = nn.Sequential(nn.Linear(2 * dim, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 1))

    def forward(self, user, item):
        u, i = self.users(user), self.items(item)
        return 3 + (u * i).sum(1) + self.mlp(torch.cat([u, i], 1)).squeeze(1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--batch_size", type=int, default=2048)
    args = parser.parse_args()
    torch.manual_seed(17)
    train_data = Ratings(3000, 800, 40960)
    train_loader = DataLoader(train_data, batch_size=args.batch_size, shuffle=True)  # <<
    model = Factors(3000, 800)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
    for epoch in range(1, args.epochs + 1):
        for batch in train_loader:  # <<
            prediction = model(batch["user"], batch["item"])
            loss = nn.functional.mse_loss(prediction, batch["rating"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch} rmse {loss.item() ** 0.5:.4f}")


if __name__ == "__main__":
    main()
