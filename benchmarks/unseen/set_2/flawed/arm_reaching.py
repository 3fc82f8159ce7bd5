"""DAgger for a three-joint planar arm that reaches for a target seen by a depth sensor.

Many arms are simulated side by side; the expert (Jacobian transpose) labels every state that the learner visits.
"""
import argparse
import time

import numpy as np
import torch
from torch import nn

LINKS = np.array([0.5, 0.4, 0.3], np.float32)
GRID = 16


class ArmBatch:
    def __init__(self, n, rng):
        self.n, self.rng = n, rng
        centers = np.linspace(-1.2, 1.2, GRID, dtype=np.float32)
        self.gy, self.gx = np.meshgrid(centers, centers, indexing="ij")
        self.reset()

    def reset(self):
        self.q = self.rng.uniform(-np.pi, np.pi, (self.n, 3)).astype(np.float32)
        radius = self.rng.uniform(0.3, 1.1, self.n)
        angle = self.rng.uniform(-np.pi, np.pi, self.n)
        self.goal = np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1).astype(np.float32)
        d2 = (self.gx - self.goal[:, 0, None, None]) ** 2 + (self.gy - self.goal[:, 1, None, None]) ** 2
        self.view = np.exp(-d2 / 0.02).reshape(self.n, -1)

    def joints(self):
        a = np.cumsum(self.q, 1)
        steps = LINKS[None, :, None] * np.stack([np.cos(a), np.sin(a)], -1)
        return np.cumsum(steps, 1)

    def observe(self):
        noise = self.rng.standard_normal((self.n, GRID * GRID), dtype=np.float32)
        return np.concatenate([self.view + 0.05 * noise, np.cos(self.q), np.sin(self.q)], 1)

    def expert(self):
        pts = self.joints()
        tip = pts[:, -1]
        err = self.goal - tip
        base = np.concatenate([np.zeros((self.n, 1, 2), np.float32), pts[:, :-1]], 1)
        arm = tip[:, None] - base
        jt = np.stack([-arm[..., 1], arm[..., 0]], -1)
        return np.clip(4 * (jt * err[:, None]).sum(-1), -1, 1)

    def step(self, action):
        self.q = self.q + 0.12 * np.clip(action, -1, 1)

    def miss(self):
        return np.linalg.norm(self.goal - self.joints()[:, -1], axis=1).mean()


def collect(env, policy, beta, steps, data):
    """Rolls the mixture of expert and learner out and adds what it sees to the data."""
    obs_all, act_all = data
    env.reset()
    for _ in range(steps):
        obs = env.observe()
        label = env.expert()
        with torch.no_grad():
            action = policy(torch.from_numpy(obs)).numpy()
        follow = env.rng.random((env.n, 1)) < beta
        env.step(np.where(follow, label, action))
        obs_all = np.concatenate([obs_all, obs])  # <<
        act_all = np.concatenate([act_all, label])  # <<
    return (obs_all, act_all), env.miss()


def fit(policy, opt, data, updates, batch, rng):
    obs, act = data
    total = 0.0
    for _ in range(updates):
        rows = rng.integers(0, len(obs), batch)
        x, y = torch.from_numpy(obs[rows]), torch.from_numpy(act[rows])
        loss = nn.functional.smooth_l1_loss(policy(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.item()
    return total / updates


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--iterations", type=int, default=12)
    p.add_argument("--envs", type=int, default=64)
    p.add_argument("--steps", type=int, default=90)
    p.add_argument("--updates", type=int, default=120)
    p.add_argument("--batch", type=int, default=128)
    args = p.parse_args()
    rng = np.random.default_rng(3)
    torch.manual_seed(3)
    env = ArmBatch(args.envs, rng)
    width = GRID * GRID + 6
    policy = nn.Sequential(nn.Linear(width, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 3), nn.Tanh())
    opt = torch.optim.Adam(policy.parameters(), lr=5e-4)
    data = (np.empty((0, width), np.float32), np.empty((0, 3), np.float32))
    for it in range(args.iterations):
        t0 = time.time()
        data, miss = collect(env, policy, beta=0.7 ** it, steps=args.steps, data=data)  # <<
        t1 = time.time()
        loss = fit(policy, opt, data, args.updates, args.batch, rng)
        print(f"dagger {it:2d}  states {len(data[0]):6d}  miss {miss:.3f}  loss {loss:.4f}"
              f"  collect {t1 - t0:.1f}s fit {time.time() - t1:.1f}s")


if __name__ == "__main__":
    main()
