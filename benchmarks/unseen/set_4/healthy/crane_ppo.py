"""PPO for an overhead crane (move the trolley to the goal without swinging the load), 64 cranes at once."""
import math

import torch
import torch.nn as nn
from torch.distributions import Normal


class Cranes:
    """Batched crane dynamics. State: trolley pos, trolley vel, swing angle, swing vel, goal."""

    def __init__(self, n):
        self.n = n
        self.s = torch.zeros(n, 5)
        self.t = torch.zeros(n)
        self.reset(torch.ones(n, dtype=torch.bool))

    def reset(self, mask):
        fresh = torch.zeros(self.n, 5)
        fresh[:, 0] = torch.rand(self.n) * 4 - 2
        fresh[:, 4] = torch.rand(self.n) * 4 - 2
        self.s = torch.where(mask[:, None], fresh, self.s)
        self.t = torch.where(mask, torch.zeros(()), self.t)

    def step(self, force):
        x, v, th, om, goal = self.s.unbind(1)
        acc = 2.0 * force.clamp(-1, 1) - 0.2 * v
        dt = 0.05
        om = om + dt * (-9.81 * th.sin() - acc * th.cos() - 0.1 * om)
        th = th + dt * om
        v = v + dt * acc
        x = x + dt * v
        self.s = torch.stack([x, v, th, om, goal], 1)
        self.t = self.t + 1
        reward = -(x - goal).abs() * 0.5 - 0.3 * th.abs() - 0.02 * force.pow(2)
        done = (x.abs() > 4) | (self.t >= 120)
        reward = reward - 5.0 * (x.abs() > 4)
        self.reset(done)
        return self.s, reward, done.float()


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.mu = nn.Sequential(nn.Linear(5, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
        self.v = nn.Sequential(nn.Linear(5, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
        self.log_std = nn.Parameter(torch.full((1,), -0.3))

    def dist(self, s):
        return Normal(self.mu(s).squeeze(-1), self.log_std.exp())

    def value(self, s):
        return self.v(s).squeeze(-1)


def advantages(rew, val, done, gamma=0.98, lam=0.95):
    adv = torch.zeros_like(rew)
    last = torch.zeros(rew.shape[1])
    for t in range(len(rew) - 1, -1, -1):
        live = 1 - done[t]
        last = rew[t] + gamma * live * val[t + 1] - val[t] + gamma * lam * live * last
        adv[t] = last
    return adv


def main(iters=60, horizon=64, epochs=8, minibatch=512):
    torch.manual_seed(19)
    env, agent = Cranes(64), Agent()
    opt = torch.optim.Adam(agent.parameters(), lr=5e-4, eps=1e-5)
    s = env.s
    for it in range(iters):
        S, A, L, R, D = [], [], [], [], []
        with torch.no_grad():
            for _ in range(horizon):
                d = agent.dist(s)
                a = d.sample()
                S.append(s)
                A.append(a)
                L.append(d.log_prob(a))
                s, r, done = env.step(a)
                R.append(r)
                D.append(done)
            states = torch.stack(S)
            val = agent.value(torch.cat([states, s[None]]))
            rew = torch.stack(R)
            adv = advantages(rew, val, torch.stack(D)).flatten()
        ret = adv + val[:-1].flatten()
        states, acts, logp = states.flatten(0, 1), torch.cat(A), torch.cat(L)
        adv = (adv - adv.mean()) / (adv.std() + 1e-8)

        stats = []
        for _ in range(epochs):
            for mb in torch.randperm(len(states)).split(minibatch):
                d = agent.dist(states[mb])
                ratio = (d.log_prob(acts[mb]) - logp[mb]).exp()
                pg = -torch.min(ratio * adv[mb], ratio.clamp(0.8, 1.2) * adv[mb]).mean()
                vf = (agent.value(states[mb]) - ret[mb]).pow(2).mean()
                loss = pg + 0.5 * vf - 0.001 * d.entropy().mean()
                opt.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                opt.step()
                stats.append((pg.item(), vf.item()))
        pg, vf = (sum(c) / len(stats) for c in zip(*stats))
        if it % 5 == 4:
            print(f"iter {it + 1:3d} reward {rew.mean().item():+.4f} pg {pg:+.4f} vf {vf:.4f} std {math.exp(agent.log_std.item()):.3f}")


if __name__ == "__main__":
    main()
