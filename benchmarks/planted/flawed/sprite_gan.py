"""A small GAN for pixel-art sprites."""
import argparse
import logging
import tempfile

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=200)
parser.add_argument("--steps", type=int, default=40)
args = parser.parse_args()
torch.manual_seed(8)
logging.basicConfig(filename=tempfile.mkdtemp() + "/gan.log", level=logging.INFO, format="%(asctime)s %(message)s")
log = logging.getLogger("gan")


def sprites(n, side=12):
    half = torch.bernoulli(torch.full((n, 1, side, side // 2), 0.4))
    return torch.cat([half, half.flip(3)], 3) * 2 - 1


class Generator(nn.Module):
    def __init__(self, depth=12, width=48):
        super().__init__()
        self.enter = nn.Linear(24, width)
        self.blocks = nn.ModuleList(nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width)) for _ in range(depth))
        self.leave = nn.Linear(width, 144)

    def forward(self, z):
        h = self.enter(z)
        for block in self.blocks:
            h = h + torch.relu(block(h))
        return torch.tanh(self.leave(h)).view(-1, 1, 12, 12)


class Critic(nn.Module):
    def __init__(self, depth=12, width=48):
        super().__init__()
        self.enter = nn.Linear(144, width)
        self.blocks = nn.ModuleList(nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width)) for _ in range(depth))
        self.leave = nn.Linear(width, 1)

    def forward(self, x):
        h = self.enter(x.flatten(1))
        for block in self.blocks:
            h = h + torch.relu(block(h))
        return self.leave(h).squeeze(1)


real = sprites(4096)
generator, critic = Generator(), Critic()
opt_g = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.99), foreach=False)  # <<
opt_c = torch.optim.Adam(critic.parameters(), lr=2e-4, betas=(0.5, 0.99), foreach=False)  # <<
for epoch in range(args.epochs):
    for step in range(args.steps):
        x = real[torch.randint(len(real), (64,))]
        fake = generator(torch.randn(64, 24))
        loss_c = torch.relu(1 - critic(x)).mean() + torch.relu(1 + critic(fake.detach())).mean()
        opt_c.zero_grad()
        loss_c.backward()
        opt_c.step()  # <<
        loss_g = -critic(fake).mean()
        opt_g.zero_grad()
        loss_g.backward()
        opt_g.step()  # <<
        log.info("step %d critic %.4f generator %.4f", step, loss_c, loss_g)
        for name, p in critic.named_parameters():
            log.info("%s mean %.5f gradient %.5f", name, p.mean(), p.grad.norm())  # <<2
    print(f"epoch {epoch}: critic {loss_c.item():.4f}, generator {loss_g.item():.4f}")
