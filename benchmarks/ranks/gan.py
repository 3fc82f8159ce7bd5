"""Two models and two optimizers: the generator learns through the discriminator, which is frozen in that step."""

import torch
from torch import nn

torch.manual_seed(5)
generator = nn.Sequential(nn.Linear(4, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 6))
critic = nn.Sequential(nn.Linear(6, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
of_generator = torch.optim.Adam(generator.parameters(), 1e-3, betas=(0.5, 0.9), eps=1e-4)
of_critic = torch.optim.Adam(critic.parameters(), 1e-3, betas=(0.5, 0.9), eps=1e-4)
for step in range(15):
    real, noise = torch.randn(11, 6) + 1, torch.randn(11, 4)
    critic.requires_grad_(True)
    fake = generator(noise).detach()
    mixed = torch.lerp(real, fake, torch.rand(11, 1)).requires_grad_()
    (slope,) = torch.autograd.grad(critic(mixed).sum(), mixed, create_graph=True)
    penalty = ((slope.norm(2, dim=1) - 1) ** 2).mean()
    loss = critic(fake).mean() - critic(real).mean() + 10 * penalty
    of_critic.zero_grad()
    loss.backward()
    of_critic.step()
    critic.requires_grad_(False)
    of_generator.zero_grad()
    fooled = -critic(generator(noise)).mean()
    fooled.backward()
    of_generator.step()
    print(f"{step} {loss.item():.5f} {penalty.item():.5f} {fooled.item():.5f}")
