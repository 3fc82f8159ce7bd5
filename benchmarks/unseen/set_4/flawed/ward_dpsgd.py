"""30-day readmission with differential privacy (DP-SGD, Abadi et al. 2016), plain PyTorch."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

CLIP = 1.0
NOISE = 0.8
LOT = 64
LR = 0.25
STEPS = 900


def make_cohort(n=12000, d=36):
    g = torch.Generator().manual_seed(8)
    x = torch.randn(n, d, generator=g)
    x[:, :10] = (x[:, :10] > 0.7).float()           # diagnosis flags
    w = torch.randn(d, generator=g) * 0.6
    logit = x @ w + 0.8 * x[:, 12] * x[:, 13] - 0.7
    y = (torch.rand(n, generator=g) < torch.sigmoid(logit)).long()
    return x, y


class RiskNet(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.fc1 = nn.Linear(d, 64)
        self.fc2 = nn.Linear(64, 32)
        self.out = nn.Linear(32, 2)

    def forward(self, x):
        return self.out(torch.tanh(self.fc2(torch.tanh(self.fc1(x)))))


class DPSGD:
    """Clips the gradient of every patient to CLIP, sums up, adds noise, takes a step."""

    def __init__(self, model, lr, clip, noise, lot):
        self.model = model
        self.params = list(model.parameters())
        self.lr, self.clip, self.noise, self.lot = lr, clip, noise, lot

    def clipped_sum(self, x, y):
        total = [torch.zeros_like(p) for p in self.params]
        loss_sum = 0.0
        for xi, yi in zip(x, y):  # <<
            self.model.zero_grad()
            loss = F.cross_entropy(self.model(xi[None]), yi[None])  # <<
            loss.backward()  # <<
            norm = torch.sqrt(sum(p.grad.pow(2).sum() for p in self.params))  # <<
            scale = (self.clip / (norm + 1e-6)).clamp(max=1.0)
            for t, p in zip(total, self.params):
                t += scale * p.grad  # <<
            loss_sum += loss.item()
        return total, loss_sum / len(x)

    def step(self, x, y):
        total, loss = self.clipped_sum(x, y)  # <<
        with torch.no_grad():
            for p, t in zip(self.params, total):
                t += self.noise * self.clip * torch.randn_like(p)
                p -= self.lr * t / self.lot
        return loss


def rough_epsilon(steps, q, sigma, delta=1e-5):
    # strong composition, only meant as a sanity number in the log
    per_step = q * math.sqrt(2 * math.log(1.25 / delta)) / sigma
    return per_step * math.sqrt(2 * steps * math.log(1 / delta))


def auc(score, y):
    order = score.argsort()
    rank = torch.empty_like(order, dtype=torch.float64)
    rank[order] = torch.arange(1, len(score) + 1, dtype=torch.float64)
    n1 = int(y.sum())
    n0 = len(y) - n1
    return ((rank[y == 1].sum() - n1 * (n1 + 1) / 2) / (n1 * n0)).item()


def main():
    torch.manual_seed(21)
    x, y = make_cohort()
    x_tr, y_tr, x_te, y_te = x[:10000], y[:10000], x[10000:], y[10000:]
    model = RiskNet(x.shape[1])
    trainer = DPSGD(model, LR, CLIP, NOISE, LOT)
    avg = 0.0
    for step in range(1, STEPS + 1):
        sel = torch.randint(len(x_tr), (LOT,))
        avg += trainer.step(x_tr[sel], y_tr[sel])  # <<
        if step % 100 == 0:
            with torch.no_grad():
                risk = model(x_te).softmax(1)[:, 1]
            eps = rough_epsilon(step, LOT / len(x_tr), NOISE)
            print(f"step {step:4d}  loss {avg / 100:.4f}  AUC {auc(risk, y_te):.4f}  eps<~{eps:.1f}")
            avg = 0.0


if __name__ == "__main__":
    main()
