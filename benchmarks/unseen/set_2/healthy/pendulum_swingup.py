"""PPO on pendulum swing-up, with 64 pendulums simulated side by side."""
import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.distributions import Normal


class Pendulums:
    def __init__(self, n, rng):
        self.n, self.rng = n, rng
        self.angle = rng.uniform(-np.pi, np.pi, n)
        self.rate = rng.uniform(-1, 1, n)
        self.age = rng.integers(0, 200, n)

    def observe(self):
        return np.stack([np.cos(self.angle), np.sin(self.angle), self.rate / 8], 1).astype(np.float32)

    def step(self, torque):
        torque = np.clip(torque, -2, 2)
        wrapped = (self.angle + np.pi) % (2 * np.pi) - np.pi
        reward = -(wrapped ** 2 + 0.1 * self.rate ** 2 + 0.001 * torque ** 2)
        self.rate = np.clip(self.rate + (15 * np.sin(self.angle) + 3 * torque) * 0.05, -8, 8)
        self.angle = self.angle + 0.05 * self.rate
        self.age += 1
        done = self.age >= 200
        k = int(done.sum())
        if k:
            self.angle[done] = self.rng.uniform(-np.pi, np.pi, k)
            self.rate[done] = self.rng.uniform(-1, 1, k)
            self.age[done] = 0
        return reward, done


class ActorCritic(nn.Module):
    def __init__(self, width=192):
        super().__init__()
        def mlp():
            return nn.Sequential(nn.Linear(3, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1))
        self.pi, self.v = mlp(), mlp()
        self.log_std = nn.Parameter(torch.zeros(1))

    def policy(self, obs):
        return Normal(2 * torch.tanh(self.pi(obs).squeeze(-1)), self.log_std.exp())

    def value(self, obs):
        return self.v(obs).squeeze(-1)


@torch.no_grad()
def rollout(env, net, horizon):
    obs = torch.empty(horizon + 1, env.n, 3)
    act = torch.empty(horizon, env.n)
    rew = np.empty((horizon, env.n), np.float32)
    end = np.empty((horizon, env.n), np.float32)
    for t in range(horizon):
        obs[t] = torch.from_numpy(env.observe())
        act[t] = net.policy(obs[t]).sample()
        rew[t], end[t] = env.step(act[t].numpy())
    obs[horizon] = torch.from_numpy(env.observe())
    return obs, act, torch.from_numpy(rew), torch.from_numpy(end)


@torch.no_grad()
def advantages(net, obs, rew, end, gamma=0.97, lam=0.95):
    values = net.value(obs)
    adv, last = torch.empty_like(rew), torch.zeros(rew.shape[1])
    for t in reversed(range(len(rew))):
        alive = 1 - end[t]
        delta = rew[t] / 8 + gamma * values[t + 1] * alive - values[t]
        adv[t] = last = delta + gamma * lam * alive * last
    return adv, adv + values[:-1]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--iterations", type=int, default=60)
    ap.add_argument("--envs", type=int, default=64)
    ap.add_argument("--horizon", type=int, default=128)
    ap.add_argument("--passes", type=int, default=6)
    ap.add_argument("--minibatch", type=int, default=1024)
    args = ap.parse_args()
    torch.manual_seed(1)
    rng = np.random.default_rng(1)
    env, net = Pendulums(args.envs, rng), ActorCritic()
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    start = time.time()
    for it in range(args.iterations):
        obs, act, rew, end = rollout(env, net, args.horizon)
        adv, ret = advantages(net, obs, rew, end)
        x, a = obs[:-1].reshape(-1, 3), act.reshape(-1)
        adv, ret = adv.reshape(-1), ret.reshape(-1)
        adv = (adv - adv.mean()) / adv.std()
        with torch.no_grad():
            old = net.policy(x).log_prob(a)
        for _ in range(args.passes):
            for rows in torch.randperm(len(x)).split(args.minibatch):
                ratio = (net.policy(x[rows]).log_prob(a[rows]) - old[rows]).exp()
                gain = torch.minimum(ratio * adv[rows], ratio.clamp(0.8, 1.2) * adv[rows]).mean()
                loss = (net.value(x[rows]) - ret[rows]).square().mean() - gain
                opt.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(net.parameters(), 0.5)
                opt.step()
        if it % 5 == 4:
            print(f"iteration {it + 1:3d}  mean reward {rew.mean().item():7.3f}  std {net.log_std.exp().item():.2f}"
                  f"  loss {loss.item():.3f}  {time.time() - start:.1f}s")


if __name__ == "__main__":
    main()
