# WGAN with gradient penalty (Gulrajani et al. 2017) on rings and crosses
import sys
import time

import torch
from torch import autograd, nn

EPOCHS = int(sys.argv[sys.argv.index("--epochs") + 1]) if "--epochs" in sys.argv else 18
BATCH, Z, CRITIC_STEPS, LAMBDA = 16, 48, 3, 10.0

torch.manual_seed(5)


def make_images(n, size=28):
    axis = torch.linspace(-1, 1, size)
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    c = (torch.rand(n, 2, 1, 1) - 0.5) * 0.6
    r = (x - c[:, 0]) ** 2 + (y - c[:, 1]) ** 2
    ring = ((r > 0.12) & (r < 0.3)).float()
    cross = (((x - c[:, 0]).abs() < 0.1) | ((y - c[:, 1]).abs() < 0.1)).float()
    kind = (torch.rand(n, 1, 1) < 0.5).float()
    return ((kind * ring + (1 - kind) * cross) * 1.8 - 0.9).unsqueeze(1)


images = make_images(BATCH * CRITIC_STEPS * 20)

generator = nn.Sequential(
    nn.Linear(Z, 96 * 7 * 7), nn.Unflatten(1, (96, 7, 7)), nn.BatchNorm2d(96), nn.ReLU(True),
    nn.ConvTranspose2d(96, 48, 4, 2, 1), nn.BatchNorm2d(48), nn.ReLU(True),
    nn.ConvTranspose2d(48, 1, 4, 2, 1), nn.Tanh(),
)
critic = nn.Sequential(
    nn.Conv2d(1, 48, 5, 2, 2), nn.LeakyReLU(0.2),
    nn.Conv2d(48, 96, 5, 2, 2), nn.LeakyReLU(0.2),
    nn.Conv2d(96, 96, 3, 1, 1), nn.LeakyReLU(0.2),
    nn.Flatten(), nn.Linear(96 * 7 * 7, 1),
)
opt_g = torch.optim.Adam(generator.parameters(), lr=1e-4, betas=(0.0, 0.9))
opt_c = torch.optim.Adam(critic.parameters(), lr=1e-4, betas=(0.0, 0.9))


def gradient_penalty(real, fake):
    mix = torch.rand(len(real), 1, 1, 1)
    between = (mix * real + (1 - mix) * fake).requires_grad_(True)
    (grad,) = autograd.grad(critic(between).sum(), between, create_graph=True)
    return ((grad.flatten(1).norm(2, dim=1) - 1) ** 2).mean()


def critic_update(real):
    with torch.no_grad():
        fake = generator(torch.randn(len(real), Z))
    scores = critic(torch.cat([real, fake]))
    s_real, s_fake = scores.chunk(2)
    loss = s_fake.mean() - s_real.mean() + LAMBDA * gradient_penalty(real, fake)
    opt_c.zero_grad()
    loss.backward()
    opt_c.step()
    return loss.detach()


def generator_update():
    critic.requires_grad_(False)
    loss = -critic(generator(torch.randn(BATCH, Z))).mean()
    opt_g.zero_grad()
    loss.backward()
    opt_g.step()
    critic.requires_grad_(True)
    return loss.detach()


for epoch in range(EPOCHS):
    start = time.time()
    c_losses, g_losses = [], []
    for k, idx in enumerate(torch.randperm(len(images)).split(BATCH)):
        c_losses.append(critic_update(images[idx]))
        if (k + 1) % CRITIC_STEPS == 0:
            g_losses.append(generator_update())
    c, g = torch.stack(c_losses).mean().item(), torch.stack(g_losses).mean().item()
    print(f"epoch {epoch}: critic {c:.3f} generator {g:.3f} ({time.time() - start:.2f} s)", flush=True)
