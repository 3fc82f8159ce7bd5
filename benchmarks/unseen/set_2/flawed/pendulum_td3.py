"""TD3 on a swing-up pendulum (own simulator), warm-started from a logged data set of random play."""
import copy
import math
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class Pendulum:
    def __init__(self, rng):
        self.rng = rng
        self.reset()

    def obs(self):
        return np.array([math.cos(self.th), math.sin(self.th), self.w / 8], dtype=np.float32)

    def reset(self):
        self.th, self.w, self.t = self.rng.uniform(-math.pi, math.pi), self.rng.uniform(-1, 1), 0
        return self.obs()

    def step(self, a):
        u = 2.0 * float(np.clip(a, -1, 1))
        ang = (self.th + math.pi) % (2 * math.pi) - math.pi
        cost = ang ** 2 + 0.1 * self.w ** 2 + 0.001 * u * u
        self.w = float(np.clip(self.w + (15 * math.sin(self.th) + 3 * u) * 0.05, -8, 8))
        self.th += self.w * 0.05
        self.t += 1
        return self.obs(), -cost / 10, self.t >= 200


class ReplayBuffer:
    def __init__(self, capacity, obs_dim, act_dim):
        self.s = np.zeros((capacity, obs_dim), np.float32)
        self.a = np.zeros((capacity, act_dim), np.float32)
        self.r = np.zeros((capacity, 1), np.float32)
        self.s2 = np.zeros((capacity, obs_dim), np.float32)
        self.d = np.zeros((capacity, 1), np.float32)
        self.capacity, self.size, self.ptr = capacity, 0, 0

    def add(self, s, a, r, s2, d):
        i = self.ptr
        self.s[i], self.a[i], self.r[i], self.s2[i], self.d[i] = s, a, r, s2, d
        self.ptr = (i + 1) % self.capacity
        self.size = min(self.size + 1, self.capacity)

    def fill_random(self, n, rng):
        """Vectorised random play, as if loaded from disk."""
        th, w = rng.uniform(-math.pi, math.pi, n), rng.uniform(-8, 8, n)
        a = rng.uniform(-1, 1, n)
        ang = (th + math.pi) % (2 * math.pi) - math.pi
        w2 = np.clip(w + (15 * np.sin(th) + 6 * a) * 0.05, -8, 8)
        th2 = th + w2 * 0.05
        self.s[:n] = np.stack([np.cos(th), np.sin(th), w / 8], 1)
        self.s2[:n] = np.stack([np.cos(th2), np.sin(th2), w2 / 8], 1)
        self.a[:n, 0] = a
        self.r[:n, 0] = -(ang ** 2 + 0.1 * w ** 2 + 0.004 * a * a) / 10
        self.size = self.ptr = n

    def sample(self, batch):
        idx = np.random.choice(self.size, size=batch, replace=False)  # <<
        return [torch.from_numpy(x[idx]) for x in (self.s, self.a, self.r, self.s2, self.d)]


def mlp(i, o, h=128):
    return nn.Sequential(nn.Linear(i, h), nn.ReLU(), nn.Linear(h, h), nn.ReLU(), nn.Linear(h, o))


class TD3:
    def __init__(self, obs_dim=3, act_dim=1, gamma=0.98, tau=0.005):
        self.actor = mlp(obs_dim, act_dim)
        self.q1, self.q2 = mlp(obs_dim + act_dim, 1), mlp(obs_dim + act_dim, 1)
        self.targets = [copy.deepcopy(m) for m in (self.actor, self.q1, self.q2)]
        self.actor_opt = torch.optim.Adam(self.actor.parameters(), lr=1e-3)
        self.q_opt = torch.optim.Adam([*self.q1.parameters(), *self.q2.parameters()], lr=1e-3)
        self.gamma, self.tau, self.updates = gamma, tau, 0

    @torch.no_grad()
    def act(self, obs, noise, rng):
        a = torch.tanh(self.actor(torch.from_numpy(obs)[None]))[0].numpy()
        return np.clip(a + rng.normal(0, noise, a.shape), -1, 1).astype(np.float32)

    def update(self, buffer, batch=256):
        s, a, r, s2, d = buffer.sample(batch)  # <<
        ta, t1, t2 = self.targets
        with torch.no_grad():
            a2 = torch.tanh(ta(s2))
            a2 = (a2 + (torch.randn_like(a2) * 0.2).clamp(-0.5, 0.5)).clamp(-1, 1)
            x2 = torch.cat([s2, a2], 1)
            y = r + self.gamma * (1 - d) * torch.min(t1(x2), t2(x2))
        x = torch.cat([s, a], 1)
        q_loss = F.mse_loss(self.q1(x), y) + F.mse_loss(self.q2(x), y)
        self.q_opt.zero_grad()
        q_loss.backward()
        self.q_opt.step()
        self.updates += 1
        if self.updates % 2 == 0:
            a_loss = -self.q1(torch.cat([s, torch.tanh(self.actor(s))], 1)).mean()
            self.actor_opt.zero_grad()
            a_loss.backward()
            self.actor_opt.step()
            with torch.no_grad():
                for t, m in zip(self.targets, (self.actor, self.q1, self.q2)):
                    torch._foreach_lerp_(list(t.parameters()), list(m.parameters()), self.tau)
        return q_loss.item()


def train(steps=3200, seed=0):
    np.random.seed(seed)
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    buffer = ReplayBuffer(500_000, 3, 1)
    buffer.fill_random(400_000, rng)
    env, agent = Pendulum(rng), TD3()
    obs, ret, returns, losses = env.reset(), 0.0, [], []
    t0 = time.time()
    for step in range(1, steps + 1):
        act = agent.act(obs, 0.1, rng)
        nxt, rew, done = env.step(act[0])
        buffer.add(obs, act, rew, nxt, 0.0)
        ret += rew
        obs = nxt
        if done:
            returns.append(ret)
            obs, ret = env.reset(), 0.0
        losses.append(agent.update(buffer))
        if step % 400 == 0:
            print(f"step {step:5d}  q-loss {np.mean(losses[-400:]):.4f}  "
                  f"return {np.mean(returns[-2:]):8.2f}  {step / (time.time() - t0):.0f} it/s")


if __name__ == "__main__":
    train()
