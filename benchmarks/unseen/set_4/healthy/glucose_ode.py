'''
Latent ODE for continuous glucose monitoring. Irregular meals as inputs, RK4 with fixed steps.
GRU encodes the first 3 h backwards -> z0, the ODE is integrated over the next 6 h (5 min grid).
'''
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

PAST, FUTURE, DT = 36, 72, 1 / 12
LATENT = 16


def simulate_patients(n, g):
    steps = PAST + FUTURE
    sens = 0.5 + torch.rand(n, generator=g)
    meals = (torch.rand(n, steps, generator=g) < 0.03).float() * (0.5 + torch.rand(n, steps, generator=g))
    glucose, insulin, gut = torch.zeros(n), torch.zeros(n), torch.zeros(n)
    out = []
    for t in range(steps):
        gut = gut + meals[:, t] * 4 - DT * 2 * gut
        insulin = insulin + DT * (1.2 * glucose.clamp(min=0) - 1.5 * insulin)
        glucose = glucose + DT * (2 * gut - sens * insulin - 0.3 * glucose)
        out.append(glucose)
    cgm = torch.stack(out, 1) + 0.03 * torch.randn(n, steps, generator=g)
    return torch.stack([cgm, meals], 2)


class Dynamics(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Sequential(nn.Linear(LATENT + 1, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, LATENT))

    def forward(self, z, meal):
        return self.f(torch.cat([z, meal], 1))


class LatentODE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.GRU(2, 32, batch_first=True)
        self.to_z = nn.Linear(32, LATENT)
        self.dyn = Dynamics()
        self.read = nn.Linear(LATENT, 1)
        nn.init.zeros_(self.dyn.f[-1].weight)

    def rk4(self, z, meal, h):
        k1 = self.dyn(z, meal)
        k2 = self.dyn(z + 0.5 * h * k1, meal)
        k3 = self.dyn(z + 0.5 * h * k2, meal)
        k4 = self.dyn(z + h * k3, meal)
        return z + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)

    def forward(self, past, meals):
        _, h = self.encoder(past.flip(1))
        z = self.to_z(h[0])
        zs = []
        for t in range(0, meals.shape[1], 3):
            # three CGM samples per solver step, meal input is the sum over them
            z = self.rk4(z, meals[:, t:t + 3].sum(1, keepdim=True), 3 * DT)
            zs.append(z)
        return self.read(torch.stack(zs, 1)).squeeze(-1)


def main():
    torch.manual_seed(9)
    g = torch.Generator().manual_seed(9)
    series = simulate_patients(2400, g)
    ds = TensorDataset(series[:, :PAST], series[:, PAST:, 1], series[:, PAST + 2::3, 0])
    train = TensorDataset(*(t[:2176] for t in ds.tensors))
    val = TensorDataset(*(t[2176:] for t in ds.tensors))
    train_dl = DataLoader(train, batch_size=64, shuffle=True)
    val_dl = DataLoader(val, batch_size=224)
    model = LatentODE()
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)

    for epoch in range(15):
        model.train()
        tot = 0.0
        for past, meals, y in train_dl:
            loss = (model(past, meals) - y).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            tot += loss.item()
        model.eval()
        with torch.no_grad():
            rmse = sum((model(p, m) - y).pow(2).sum().item() for p, m, y in val_dl)
        print('epoch %2d  mse %.4f  val rmse %.4f' % (epoch, tot / len(train_dl), (rmse / (224 * 24)) ** 0.5))


if __name__ == '__main__':
    main()
