"""REINFORCE with a baseline on a batch of simulated kites (keep the kite in the wind window).

The simulator is vectorised over the kites; time has to be stepped one tick after the other.
"""
import time

import torch
import torch.nn as nn
from torch.distributions import Normal

KITES, TICKS, OBS = 192, 60, 6


class KiteSim:
    def __init__(self, n, gen):
        self.n, self.gen = n, gen

    def reset(self):
        self.angle = torch.empty(self.n, 2).uniform_(-0.4, 0.4, generator=self.gen)
        self.rate = torch.zeros(self.n, 2)
        self.wind = torch.empty(self.n, 1).uniform_(0.6, 1.4, generator=self.gen)
        self.tick = 0
        return self.obs()

    def obs(self):
        clock = torch.full((self.n, 1), self.tick / TICKS)
        return torch.cat([self.angle, self.rate, self.wind, clock], 1)

    def step(self, steer):
        gust = 0.05 * torch.randn(self.n, 2, generator=self.gen)
        pull = torch.stack([torch.sin(self.angle[:, 0] * 2), 0.5 * self.angle[:, 1]], 1)
        self.rate = 0.96 * self.rate + 0.08 * (self.wind * pull + steer.clamp(-1, 1)) + gust * 0.3
        self.angle = (self.angle + 0.1 * self.rate).clamp(-1.5, 1.5)
        self.wind = (self.wind + 0.01 * torch.randn(self.n, 1, generator=self.gen)).clamp(0.3, 2.0)
        self.tick += 1
        reward = 1.0 - self.angle.square().sum(1) - 0.05 * steer.square().sum(1)
        return self.obs(), reward


class Policy(nn.Module):
    def __init__(self, hidden=192):
        super().__init__()
        self.mean = nn.Sequential(nn.Linear(OBS, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, 2))
        self.log_std = nn.Parameter(torch.full((2,), -0.5))
        self.value = nn.Sequential(nn.Linear(OBS, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, 1))

    def dist(self, obs):
        return Normal(self.mean(obs), self.log_std.exp())


def main(iterations=160):
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(1)
    sim, policy = KiteSim(KITES, gen), Policy()
    opt = torch.optim.Adam(policy.parameters(), lr=1e-3)
    tic = time.time()
    for it in range(iterations):
        obs, trace = sim.reset(), []
        with torch.no_grad():
            for _ in range(TICKS):
                action = policy.dist(obs).sample()
                nxt, reward = sim.step(action)
                trace.append((obs, action, reward))
                obs = nxt
        observations, actions, rewards = (torch.stack(c) for c in zip(*trace))
        returns, running = torch.empty_like(rewards), torch.zeros(KITES)
        for t in reversed(range(TICKS)):
            running = rewards[t] + 0.98 * running
            returns[t] = running

        value = policy.value(observations).squeeze(-1)
        advantage = (returns - value).detach()
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-6)
        dist = policy.dist(observations)
        logp = dist.log_prob(actions).sum(-1)
        loss = -(advantage * logp).mean() + 0.1 * (value - returns).square().mean() - 1e-3 * dist.entropy().mean()
        opt.zero_grad()
        loss.backward()
        grad = nn.utils.clip_grad_norm_(policy.parameters(), 1.0).item()
        opt.step()
        if it % 20 == 0:
            print(f"iter {it:3d} reward {rewards.mean().item():+.3f} loss {loss.item():+.3f} grad {grad:.2f} {time.time() - tic:.1f}s")


if __name__ == "__main__":
    main()
