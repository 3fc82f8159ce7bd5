"""DDPG for a planar drone that has to hover at the origin."""
import math
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn


class PlanarDrone:
    obs_dim, act_dim, limit = 8, 2, 200

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def reset(self):
        self.s = self.rng.uniform(-1, 1, 6) * np.array([1, 1, 0.4, 0.5, 0.5, 0.5])
        self.t = 0
        return self.observe()

    def observe(self):
        x, z, th, vx, vz, w = self.s
        return np.array([x, z, math.sin(th), math.cos(th), vx, vz, w, self.t / self.limit], dtype=np.float32)

    def step(self, a):
        x, z, th, vx, vz, w = self.s
        left, right = (float(np.clip(v, -1, 1)) * 4 + 4.9 for v in a)
        thrust, torque = left + right, right - left
        vx += -math.sin(th) * thrust * 0.02
        vz += (math.cos(th) * thrust - 9.81) * 0.02
        w += torque * 0.05
        self.s = np.array([x + 0.02 * vx, z + 0.02 * vz, th + 0.02 * w, vx, vz, w])
        self.t += 1
        crashed = abs(x) > 3 or abs(z) > 3 or abs(th) > 1.6
        reward = 1.0 - 0.3 * math.hypot(x, z) - 0.1 * abs(th) - (10.0 if crashed else 0.0)
        return self.observe(), reward, crashed, crashed or self.t >= self.limit


class Memory:
    def __init__(self, size, obs, act):
        self.data = {"obs": np.zeros((size, obs), np.float32), "act": np.zeros((size, act), np.float32),
                     "rew": np.zeros(size, np.float32), "next": np.zeros((size, obs), np.float32),
                     "done": np.zeros(size, np.float32)}
        self.size, self.count = size, 0

    def add(self, obs, act, rew, nxt, done):
        k = self.count % self.size
        for name, value in zip(self.data, (obs, act, rew, nxt, done)):
            self.data[name][k] = value
        self.count += 1

    def batch(self, n):
        rows = np.random.randint(0, min(self.count, self.size), n)
        return [torch.from_numpy(col[rows]) for col in self.data.values()]


def net(i, o, last=None):
    layers = [nn.Linear(i, 160), nn.ReLU(), nn.Linear(160, 160), nn.ReLU(), nn.Linear(160, o)]
    return nn.Sequential(*layers, *([last] if last else []))


class Agent:
    def __init__(self, env):
        self.actor = net(env.obs_dim, env.act_dim, nn.Tanh())
        self.critic = net(env.obs_dim + env.act_dim, 1)
        self.actor_t = net(env.obs_dim, env.act_dim, nn.Tanh())
        self.critic_t = net(env.obs_dim + env.act_dim, 1)
        self.actor_t.load_state_dict(self.actor.state_dict())
        self.critic_t.load_state_dict(self.critic.state_dict())
        self.opt_a = torch.optim.Adam(self.actor.parameters(), lr=3e-4)
        self.opt_c = torch.optim.Adam(self.critic.parameters(), lr=1e-3)
        self.memory = Memory(600_000, env.obs_dim, env.act_dim)

    @torch.no_grad()
    def act(self, obs, noise=0.15):
        a = self.actor(torch.from_numpy(obs)).numpy()
        return np.clip(a + np.random.normal(0, noise, a.shape), -1, 1).astype(np.float32)

    def learn(self, n=256):
        o, a, r, o2, d = self.memory.batch(n)
        with torch.no_grad():
            y = r + 0.98 * (1 - d) * self.critic_t(torch.cat([o2, self.actor_t(o2)], 1)).squeeze(1)
        loss_c = (self.critic(torch.cat([o, a], 1)).squeeze(1) - y).square().mean()
        self.opt_c.zero_grad()
        loss_c.backward()
        self.opt_c.step()
        loss_a = -self.critic(torch.cat([o, self.actor(o)], 1)).mean()
        self.opt_a.zero_grad()
        loss_a.backward()
        self.opt_a.step()
        with torch.no_grad():
            for slow, fast in ((self.actor_t, self.actor), (self.critic_t, self.critic)):
                torch._foreach_lerp_(list(slow.parameters()), list(fast.parameters()), 0.01)
        return loss_c.item()

    def save(self, path):
        torch.save(self, path)  # <<


def main(steps=4000, save_every=50):
    torch.manual_seed(1)
    np.random.seed(1)
    env = PlanarDrone(1)
    agent = Agent(env)
    folder = Path(tempfile.mkdtemp(prefix="drone_altitude_"))
    obs, ret, returns, tic = env.reset(), 0.0, [0.0], time.time()
    for step in range(1, steps + 1):
        act = agent.act(obs) if step > 500 else np.random.uniform(-1, 1, 2).astype(np.float32)
        nxt, rew, crash, over = env.step(act)
        agent.memory.add(obs, act, rew, nxt, float(crash))
        obs, ret = nxt, ret + rew
        if over:
            returns.append(ret)
            obs, ret = env.reset(), 0.0
        if step < 500:
            continue
        loss = agent.learn()
        if step % save_every == 0:
            agent.save(folder / "agent.pt")  # <<
        if step % 250 == 0:
            print(f"step {step}  critic {loss:.4f}  return {np.mean(returns[-10:]):.1f}  {step / (time.time() - tic):.0f} steps/s")


if __name__ == "__main__":
    main()
