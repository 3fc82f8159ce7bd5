"""WGAN-GP for energy deposits in a 12 x 12 x 3 calorimeter."""
import argparse
import time

import torch
from torch import nn

SIDE, LAYERS = 12, 3
CELLS = SIDE * SIDE * LAYERS


def showers(n, seed):
    g = torch.Generator().manual_seed(seed)
    yy, xx = torch.meshgrid(torch.arange(SIDE), torch.arange(SIDE), indexing="ij")
    energy = 1 + 4 * torch.rand(n, 1, 1, 1, generator=g)
    center = SIDE / 2 + torch.randn(2, n, 1, 1, 1, generator=g)
    depth = torch.arange(LAYERS).view(1, -1, 1, 1)
    radius = 1.0 + 0.6 * depth + 0.2 * torch.rand(n, 1, 1, 1, generator=g)
    r2 = (yy - center[0]) ** 2 + (xx - center[1]) ** 2
    share = torch.tensor([0.2, 0.5, 0.3]).view(1, -1, 1, 1)
    mean = energy * share * torch.exp(-r2 / (2 * radius ** 2)) / radius ** 2
    return torch.log1p(10 * torch.poisson(mean * 60, generator=g) / 60).flatten(1)


def mlp(sizes, act, last=None):
    layers = []
    for i, o in zip(sizes, sizes[1:]):
        layers += [nn.Linear(i, o), act]
    layers[-1] = last or nn.Identity()
    return nn.Sequential(*layers)


def gradient_penalty(critic, real, fake):
    mix = torch.rand(len(real), 1)
    between = (mix * real + (1 - mix) * fake).requires_grad_()
    grad, = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
    return (grad.norm(dim=1) - 1).square().mean()


def critic_step(critic, gen, opt, real, latent):
    with torch.no_grad():
        fake = gen(torch.randn(len(real), latent))
    scores = critic(torch.cat([real, fake]))
    distance = scores[:len(real)].mean() - scores[len(real):].mean()
    loss = 10 * gradient_penalty(critic, real, fake) - distance
    opt.zero_grad()
    loss.backward()
    opt.step()
    return distance.item()


def generator_step(critic, gen, opt, n, latent):
    critic.requires_grad_(False)
    loss = -critic(gen(torch.randn(n, latent))).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    critic.requires_grad_(True)


@torch.no_grad()
def profile_error(gen, real, latent):
    fake = gen(torch.randn(2000, latent))
    return (fake.mean(0) - real.mean(0)).abs().mean().item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=14)
    ap.add_argument("--batch", type=int, default=128)
    ap.add_argument("--latent", type=int, default=32)
    ap.add_argument("--critic-steps", type=int, default=4)
    args = ap.parse_args()
    torch.manual_seed(10)
    data = showers(20000, seed=10)
    gen = mlp([args.latent, 256, 512, CELLS], nn.ReLU(), nn.Softplus())
    critic = mlp([CELLS, 512, 256, 1], nn.LeakyReLU(0.2))
    opt_g = torch.optim.Adam(gen.parameters(), lr=2e-4, betas=(0.0, 0.9))
    opt_c = torch.optim.Adam(critic.parameters(), lr=2e-4, betas=(0.0, 0.9))
    for epoch in range(args.epochs):
        t0, distances = time.time(), []
        for i, rows in enumerate(torch.randperm(len(data)).split(args.batch)):
            distances.append(critic_step(critic, gen, opt_c, data[rows], args.latent))
            if i % args.critic_steps == 0:
                generator_step(critic, gen, opt_g, args.batch, args.latent)
        print(f"epoch {epoch:2d}  W {sum(distances) / len(distances):.3f}  profile error "
              f"{profile_error(gen, data, args.latent):.4f}  {time.time() - t0:.1f}s")


if __name__ == "__main__":
    main()
