"""TD3+BC on a fixed data set of a noisy point-mass controller, with representation diagnostics."""
import argparse
import copy
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

STATE, ACTION = 17, 6


class MLP(nn.Module):
    def __init__(self, inp, out, hidden=256):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(inp, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.out = nn.Linear(hidden, out)

    def forward(self, x):
        return self.out(self.features(x))


class TwinCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.q1 = MLP(STATE + ACTION, 1)
        self.q2 = MLP(STATE + ACTION, 1)

    def forward(self, s, a):
        sa = torch.cat([s, a], dim=1)
        return self.q1(sa), self.q2(sa)


class Probe:
    """Base of things that look at the activations of a module."""

    def __init__(self):
        self.sum, self.count = 0.0, 0

    def attach(self, module):
        module.register_forward_hook(self._hook)
        return self

    def _hook(self, module, inputs, output):
        if module.training:
            self.observe(output.detach())  # <<

    def report(self):
        value = float(self.sum) / max(1, self.count)
        self.sum, self.count = 0.0, 0
        return value


class EffectiveRank(Probe):
    """srank: how many singular values hold 99% of the spectrum (Kumar et al., implicit under-parametrisation)."""

    def observe(self, features):
        sigma = torch.linalg.svdvals(features)  # <<
        mass = sigma.cumsum(0) / sigma.sum()
        self.sum += (mass < 0.99).sum() + 1
        self.count += 1


class DeadUnits(Probe):
    def observe(self, features):
        self.sum += (features.amax(0) <= 0).float().mean()
        self.count += 1


class Agent:
    def __init__(self, alpha=2.5, gamma=0.99, tau=0.005):
        self.actor = MLP(STATE, ACTION)
        self.critic = TwinCritic()
        self.actor_target = copy.deepcopy(self.actor).eval()
        self.critic_target = copy.deepcopy(self.critic).eval()
        self.actor_opt = torch.optim.Adam(self.actor.parameters(), lr=3e-4)
        self.critic_opt = torch.optim.Adam(self.critic.parameters(), lr=3e-4)
        self.alpha, self.gamma, self.tau = alpha, gamma, tau
        self.probes = {
            "rank": EffectiveRank().attach(self.critic.q1.features),  # <<
            "dead": DeadUnits().attach(self.critic.q2.features),
        }
        self.updates = 0

    def train_critic(self, s, a, r, s2, done):
        with torch.no_grad():
            noise = (torch.randn_like(a) * 0.2).clamp(-0.5, 0.5)
            a2 = (self.actor_target(s2).tanh() + noise).clamp(-1, 1)
            target = r + self.gamma * (1 - done) * torch.min(*self.critic_target(s2, a2))
        q1, q2 = self.critic(s, a)  # <<
        loss = F.mse_loss(q1, target) + F.mse_loss(q2, target)
        self.critic_opt.zero_grad()
        loss.backward()
        self.critic_opt.step()
        return loss.detach()

    def train_actor(self, s, a):
        pi = self.actor(s).tanh()
        sa = torch.cat([s, pi], dim=1)
        q = self.critic.q2(sa)
        lam = self.alpha / q.abs().mean().detach()
        loss = -lam * q.mean() + F.mse_loss(pi, a)
        self.actor_opt.zero_grad()
        loss.backward()
        self.actor_opt.step()

    def soft_update(self):
        with torch.no_grad():
            for net, target in ((self.actor, self.actor_target), (self.critic, self.critic_target)):
                torch._foreach_lerp_(list(target.parameters()), list(net.parameters()), self.tau)

    def update(self, batch):
        self.updates += 1
        loss = self.train_critic(*batch)
        if self.updates % 2 == 0:
            self.train_actor(batch[0], batch[1])
            self.soft_update()
        return loss


def collect(size):
    """Logged transitions: linear dynamics with saturation and a mediocre feedback policy."""
    a_mat = torch.eye(STATE) * 0.95 + 0.03 * torch.randn(STATE, STATE)
    b_mat = 0.3 * torch.randn(STATE, ACTION)
    gain = -0.4 * torch.linalg.pinv(b_mat)
    s = torch.randn(size, STATE)
    a = (s @ gain.T + 0.4 * torch.randn(size, ACTION)).clamp(-1, 1)
    s2 = (s @ a_mat.T + a @ b_mat.T).clamp(-5, 5)
    r = -(s2.pow(2).mean(1, keepdim=True)) - 0.01 * a.pow(2).sum(1, keepdim=True)
    done = (torch.rand(size, 1) < 0.01).float()
    return s, a, r, s2, done


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=40)
    ap.add_argument("--updates", type=int, default=100)
    ap.add_argument("--batch-size", type=int, default=256)
    args = ap.parse_args()
    torch.manual_seed(7)
    data = collect(50_000)
    agent = Agent()
    for epoch in range(args.epochs):
        t = time.time()
        total = torch.zeros(())
        for _ in range(args.updates):
            index = torch.randint(len(data[0]), (args.batch_size,))
            total += agent.update([x[index] for x in data])
        stats = "  ".join(f"{k} {p.report():.3f}" for k, p in agent.probes.items())
        print(f"epoch {epoch}: critic {total.item() / args.updates:.4f}  {stats}  {time.time() - t:.2f}s")


if __name__ == "__main__":
    main()
