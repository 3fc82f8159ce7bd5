"""DeepSurv-like Cox model for time to relapse. Harrell's C on the validation cohort after each epoch,
early stopping on it (patience is large on purpose, the curve is noisy)."""
import copy

import numpy as np
import torch
from torch import nn


class CohortSimulator:
    def __init__(self, d=60, seed=77):
        self.rng = np.random.default_rng(seed)
        self.beta = self.rng.normal(size=d) * (self.rng.random(d) < 0.3)
        self.d = d

    def draw(self, n):
        x = self.rng.normal(size=(n, self.d))
        risk = x @ self.beta * 0.5 + 0.6 * np.sin(2 * x[:, 0]) * x[:, 1]
        t = self.rng.exponential(np.exp(-risk))
        c = self.rng.exponential(2.0, n)
        return (torch.tensor(x, dtype=torch.float32), torch.tensor(np.minimum(t, c), dtype=torch.float32),
                torch.tensor(t <= c))


def cox_ph_loss(log_risk, time, event):
    order = torch.argsort(time, descending=True)
    log_risk, event = log_risk[order], event[order]
    return -(log_risk - torch.logcumsumexp(log_risk, 0))[event].mean()


def concordance(time, event, risk):
    """Harrell's C: share of comparable pairs that are ordered correctly (ties count 1/2)."""
    concordant = ties = comparable = 0
    for i in range(len(time)):
        if not event[i]:
            continue
        for j in range(len(time)):
            if time[i] < time[j]:  # <<
                comparable += 1
                if risk[i] > risk[j]:  # <<
                    concordant += 1  # <<
                elif risk[i] == risk[j]:
                    ties += 1
    return (concordant + 0.5 * ties) / comparable


def build_net(d):
    return nn.Sequential(nn.Linear(d, 128), nn.SELU(), nn.AlphaDropout(0.1), nn.Linear(128, 128), nn.SELU(),
                         nn.AlphaDropout(0.1), nn.Linear(128, 1))


def main():
    torch.manual_seed(77)
    sim = CohortSimulator()
    x, t, e = sim.draw(6000)
    xv, tv, ev = sim.draw(1100)
    net = build_net(x.shape[1])
    opt = torch.optim.Adam(net.parameters(), lr=5e-4, weight_decay=1e-4)

    best, best_state, bad = 0.0, None, 0
    for epoch in range(90):
        net.train()
        losses = []
        for idx in torch.randperm(len(x)).split(256):
            loss = cox_ph_loss(net(x[idx]).squeeze(1), t[idx], e[idx])
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses.append(loss.item())

        net.eval()
        with torch.no_grad():
            risk = net(xv).squeeze(1)
        c = concordance(tv.numpy(), ev.numpy(), risk.numpy())  # <<
        if c > best:
            best, best_state, bad = c, copy.deepcopy(net.state_dict()), 0
        else:
            bad += 1
        if epoch % 5 == 0:
            print(f"epoch {epoch:3d}  cox {np.mean(losses):.4f}  C {c:.4f}  (best {best:.4f})")
        if bad >= 50:
            break

    net.load_state_dict(best_state)
    print("final C-index %.4f" % best)


if __name__ == "__main__":
    main()
