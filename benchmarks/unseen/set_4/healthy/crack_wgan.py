# WGAN-GP on concrete crack patches, following Gulrajani et al. (n_critic = 5, lambda = 10)
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(31)

NZ = 32
BS = 8
N_CRITIC = 5
LAMBDA = 10.0
GEN_ITERS = 300


def crack_patches(n, size=24):
    g = torch.linspace(-1, 1, size)
    yy, xx = torch.meshgrid(g, g, indexing="ij")
    a = torch.rand(n, 1, 1) * 3.14
    off = torch.rand(n, 1, 1) * 0.8 - 0.4
    wob = torch.rand(n, 1, 1) * 0.3
    along = xx * a.cos() + yy * a.sin()
    across = -xx * a.sin() + yy * a.cos() - off - wob * torch.sin(4 * along)
    img = 0.6 - 1.2 * torch.exp(-(across / 0.12) ** 2) + 0.1 * torch.randn(n, size, size)
    return img.clamp(-1, 1).unsqueeze(1)


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(NZ, 48 * 6 * 6)
        self.c1 = nn.ConvTranspose2d(48, 24, 4, 2, 1)
        self.c2 = nn.ConvTranspose2d(24, 12, 4, 2, 1)
        self.c3 = nn.Conv2d(12, 1, 3, padding=1)
        self.b0, self.b1 = nn.BatchNorm2d(48), nn.BatchNorm2d(24)

    def forward(self, z):
        x = F.relu(self.b0(self.fc(z).view(-1, 48, 6, 6)))
        x = F.relu(self.b1(self.c1(x)))
        return torch.tanh(self.c3(F.relu(self.c2(x))))


class Critic(nn.Module):
    def __init__(self, w=12):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(1, w, 3, padding=1), nn.LeakyReLU(0.2),
            nn.Conv2d(w, 2 * w, 4, 2, 1), nn.LeakyReLU(0.2),
            nn.Conv2d(2 * w, 4 * w, 4, 2, 1), nn.LeakyReLU(0.2),
            nn.Flatten(), nn.Linear(4 * w * 36, 1),
        )

    def forward(self, x):
        return self.net(x).squeeze(1)


def gradient_penalty(critic, real, fake):
    eps = torch.rand(len(real), 1, 1, 1)
    mid = (eps * real + (1 - eps) * fake).requires_grad_(True)
    grad, = torch.autograd.grad(critic(mid).sum(), mid, create_graph=True)
    return ((grad.flatten(1).norm(dim=1) - 1) ** 2).mean()


patches = crack_patches(1200)
G, D = Generator(), Critic()
opt_g = torch.optim.Adam(G.parameters(), lr=2e-4, betas=(0.0, 0.9))
opt_d = torch.optim.Adam(D.parameters(), lr=2e-4, betas=(0.0, 0.9))

for it in range(1, GEN_ITERS + 1):
    w_dist = 0.0
    for _ in range(N_CRITIC):
        real = patches[torch.randint(len(patches), (BS,))]
        with torch.no_grad():
            fake = G(torch.randn(BS, NZ))
        score_real, score_fake = D(real).mean(), D(fake).mean()
        loss_d = score_fake - score_real + LAMBDA * gradient_penalty(D, real, fake)
        opt_d.zero_grad()
        loss_d.backward()
        opt_d.step()
        w_dist += (score_real - score_fake).item() / N_CRITIC

    for p in D.parameters():
        p.requires_grad_(False)
    loss_g = -D(G(torch.randn(BS, NZ))).mean()
    opt_g.zero_grad()
    loss_g.backward()
    opt_g.step()
    for p in D.parameters():
        p.requires_grad_(True)

    if it % 20 == 0:
        print(f"{it:4d}  W {w_dist:+.3f}  G {loss_g.item():+.3f}")
