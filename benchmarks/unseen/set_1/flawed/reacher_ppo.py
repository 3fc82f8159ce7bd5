"""PPO on a planar two-link reacher, own simulator. One epoch = one collection plus its optimisation passes."""
import argparse
import math
import time

import numpy as np
import torch
import torch.nn as nn


class Reacher:
    """Two links, torque control, goal somewhere in reach."""

    obs_dim, act_dim = 8, 2

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.reset()

    def reset(self):
        self.q1, self.q2 = self.rng.uniform(-math.pi, math.pi, 2)
        self.v1 = self.v2 = 0.0
        r, phi = self.rng.uniform(0.3, 1.8), self.rng.uniform(-math.pi, math.pi)
        self.gx, self.gy = r * math.cos(phi), r * math.sin(phi)
        self.t = 0
        return self.observe()

    def tip(self):
        return (math.cos(self.q1) + math.cos(self.q1 + self.q2), math.sin(self.q1) + math.sin(self.q1 + self.q2))

    def observe(self):
        x, y = self.tip()
        return np.array([math.cos(self.q1), math.sin(self.q1), math.cos(self.q2), math.sin(self.q2),
                         self.v1, self.v2, self.gx - x, self.gy - y], dtype=np.float32)

    def step(self, action):
        a1, a2 = float(min(1, max(-1, action[0]))), float(min(1, max(-1, action[1])))
        for _ in range(2):
            self.v1 += 0.025 * (4 * a1 - 0.5 * self.v1)
            self.v2 += 0.025 * (4 * a2 - 0.5 * self.v2 - 0.3 * self.v1)
            self.q1 += 0.025 * self.v1
            self.q2 += 0.025 * self.v2
        self.t += 1
        x, y = self.tip()
        reward = -math.hypot(self.gx - x, self.gy - y) - 0.01 * (a1 * a1 + a2 * a2)
        done = self.t >= 100
        obs = self.reset() if done else self.observe()
        return obs, reward, done


class ActorCritic(nn.Module):
    def __init__(self, obs, act, width=256):
        super().__init__()
        self.pi = nn.Sequential(nn.Linear(obs, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, act))
        self.v = nn.Sequential(nn.Linear(obs, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1))
        self.log_std = nn.Parameter(torch.full((act,), -0.5))

    def forward(self, obs):
        return self.pi(obs), self.v(obs).squeeze(-1)

    def log_prob(self, mean, action):
        z = (action - mean) * (-self.log_std).exp()
        return (-0.5 * z.square() - self.log_std - 0.9189).sum(-1)


class Collector:
    def __init__(self, envs, model, horizon, seed):
        self.envs, self.model, self.horizon = envs, model, horizon
        self.rng = np.random.default_rng(seed)
        self.obs = [e.reset() for e in envs]

    @torch.no_grad()
    def collect(self):
        n = len(self.envs)
        obs = torch.zeros(self.horizon, n, Reacher.obs_dim)
        act = torch.zeros(self.horizon, n, Reacher.act_dim)
        logp, value, reward, done = torch.zeros(4, self.horizon, n).unbind(0)
        for t in range(self.horizon):
            for i, env in enumerate(self.envs):  # <<
                o = torch.from_numpy(self.obs[i])
                mean, v = self.model(o)  # <<
                noise = torch.from_numpy(self.rng.standard_normal(Reacher.act_dim).astype(np.float32))
                a = mean + self.model.log_std.exp() * noise  # <<
                obs[t, i], act[t, i], value[t, i] = o, a, v  # <<
                logp[t, i] = self.model.log_prob(mean, a)  # <<
                self.obs[i], r, d = env.step(a.tolist())
                reward[t, i], done[t, i] = r, float(d)
        last = self.model(torch.from_numpy(np.stack(self.obs)))[1]
        return obs, act, logp, value, reward, done, last


def advantages(value, reward, done, last, gamma=0.97, lam=0.95):
    out = torch.zeros_like(reward)
    running = torch.zeros_like(last)
    for t in range(len(reward) - 1, -1, -1):
        following = last if t == len(reward) - 1 else value[t + 1]
        delta = reward[t] + gamma * following * (1 - done[t]) - value[t]
        running = delta + gamma * lam * (1 - done[t]) * running
        out[t] = running
    return out


def optimise(model, opt, rollout, passes, batch):
    obs, act, logp, value, reward, done, last = rollout
    adv = advantages(value, reward, done, last)
    ret = (adv + value).flatten()
    adv = ((adv - adv.mean()) / (adv.std() + 1e-8)).flatten()
    obs, act, logp = obs.flatten(0, 1), act.flatten(0, 1), logp.flatten()
    for _ in range(passes):
        for index in torch.randperm(len(obs)).split(batch):
            mean, v = model(obs[index])
            ratio = (model.log_prob(mean, act[index]) - logp[index]).exp()
            gain = torch.min(ratio * adv[index], ratio.clamp(0.8, 1.2) * adv[index]).mean()
            loss = -gain + 0.5 * (v - ret[index]).square().mean() - 0.001 * model.log_std.sum()
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            opt.step()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=30)
    args = ap.parse_args()
    torch.manual_seed(9)
    envs = [Reacher(seed=40 + i) for i in range(16)]
    model = ActorCritic(Reacher.obs_dim, Reacher.act_dim)
    opt = torch.optim.Adam(model.parameters(), lr=3e-4)
    collector = Collector(envs, model, horizon=256, seed=77)
    for epoch in range(args.epochs):
        start = time.perf_counter()
        rollout = collector.collect()  # <<
        optimise(model, opt, rollout, passes=10, batch=512)
        print(f"iteration {epoch:3d}  reward {rollout[4].mean():.4f}  {time.perf_counter() - start:.2f}s")


if __name__ == "__main__":
    main()
