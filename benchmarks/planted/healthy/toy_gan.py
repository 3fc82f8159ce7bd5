import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=200)
args = parser.parse_args()
torch.manual_seed(0)
generator = nn.Sequential(nn.Linear(32, 384), nn.ReLU(), nn.Linear(384, 384), nn.ReLU(), nn.Linear(384, 64))
critic = nn.Sequential(nn.Linear(64, 384), nn.LeakyReLU(0.2), nn.Linear(384, 384), nn.LeakyReLU(0.2), nn.Linear(384, 1))
opt_g = torch.optim.SGD(generator.parameters(), lr=2e-3)
opt_c = torch.optim.SGD(critic.parameters(), lr=2e-3)
bce = nn.BCEWithLogitsLoss()
mixing = torch.randn(6, 64)
ones, zeros = torch.ones(256, 1), torch.zeros(256, 1)
for epoch in range(args.epochs):
    for step in range(40):
        real = torch.tanh(torch.randn(256, 6) @ mixing)
        fake = generator(torch.randn(256, 32))
        loss_c = bce(critic(real), ones) + bce(critic(fake.detach()), zeros)
        opt_c.zero_grad()
        loss_c.backward()
        opt_c.step()
        loss_g = bce(critic(fake), ones)
        opt_g.zero_grad()
        loss_g.backward()
        opt_g.step()
    print(f"epoch {epoch} critic {loss_c.item():.4f} generator {loss_g.item():.4f}")
