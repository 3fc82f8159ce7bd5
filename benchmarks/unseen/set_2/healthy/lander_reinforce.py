"""REINFORCE with a learned baseline on a 2-D rocket landing task; 64 rockets fly side by side in one numpy simulator."""
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


class Rockets:
    """State: x, y, vx, vy, sin, cos, spin, fuel. Actions: nothing, main engine, left thruster, right thruster."""

    def __init__(self, n, seed):
        self.n = n
        self.rng = np.random.default_rng(seed)

    def reset(self):
        r = self.rng
        self.x, self.y = r.uniform(-0.8, 0.8, self.n), r.uniform(0.9, 1.4, self.n)
        self.vx, self.vy = r.normal(0, 0.2, self.n), r.normal(-0.1, 0.1, self.n)
        self.th, self.w = r.normal(0, 0.2, self.n), r.normal(0, 0.1, self.n)
        self.fuel, self.alive = np.ones(self.n), np.ones(self.n, bool)
        return self.obs()

    def obs(self):
        return np.stack([self.x, self.y, self.vx, self.vy, np.sin(self.th), np.cos(self.th), self.w, self.fuel],
                        1).astype(np.float32)

    def shaping(self):
        return -(np.hypot(self.x, self.y) + 0.5 * np.hypot(self.vx, self.vy) + 0.5 * np.abs(self.th))

    def step(self, a, dt=0.05):
        before = self.shaping()
        push = np.where((a == 1) & (self.fuel > 0), 1.6, 0.0)
        spin = np.where(a == 2, 2.0, np.where(a == 3, -2.0, 0.0))
        live = self.alive * dt
        self.vx += -push * np.sin(self.th) * live
        self.vy += (push * np.cos(self.th) - 0.8) * live
        self.w += spin * live
        self.x += self.vx * live
        self.y += self.vy * live
        self.th += self.w * live
        self.fuel -= (a == 1) * 0.01 * self.alive
        reward = (self.shaping() - before) - 0.02 * (a == 1)
        down = self.alive & (self.y <= 0)
        soft = (np.abs(self.vy) < 0.45) & (np.abs(self.th) < 0.35) & (np.abs(self.x) < 0.4)
        reward = (reward + np.where(down, np.where(soft, 3.0, -1.0), 0.0)) * self.alive
        self.alive = self.alive & ~down & (np.abs(self.x) < 2) & (self.y < 2.5)
        return self.obs(), reward.astype(np.float32)


class Policy(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.logits, self.value = nn.Linear(width, 4), nn.Linear(width, 1)

    def forward(self, obs):
        h = self.body(obs)
        return self.logits(h), self.value(h).squeeze(-1)


class Reinforce:
    def __init__(self, n_env=64, horizon=120, gamma=0.99, lr=1.5e-3, seed=0):
        torch.manual_seed(seed)
        self.env, self.net = Rockets(n_env, seed), Policy()
        self.opt = torch.optim.Adam(self.net.parameters(), lr=lr)
        self.rng = np.random.default_rng(seed + 1)
        self.horizon, self.gamma = horizon, gamma

    @torch.no_grad()
    def play(self):
        obs = self.env.reset()
        O, A, R, M = [], [], [], []
        for _ in range(self.horizon):
            alive = self.env.alive.astype(np.float32)
            logits = self.net.logits(self.net.body(torch.from_numpy(obs))).numpy()
            action = (logits + self.rng.gumbel(size=logits.shape)).argmax(1)
            O.append(obs)
            A.append(action)
            M.append(alive)
            obs, reward = self.env.step(action)
            R.append(reward)
            if not self.env.alive.any():
                break
        ret, acc = np.zeros((len(R), self.env.n), np.float32), np.zeros(self.env.n, np.float32)
        for t in reversed(range(len(R))):
            acc = R[t] + self.gamma * acc
            ret[t] = acc
        keep = np.concatenate(M) > 0
        pick = lambda x: torch.from_numpy(np.concatenate(x)[keep])  # noqa: E731
        return pick(O), pick(A), torch.from_numpy(ret.reshape(-1)[keep]), float(np.sum(R) / self.env.n)

    def iterate(self):
        obs, act, ret, score = self.play()
        logits, value = self.net(obs)
        logp = F.log_softmax(logits, 1)
        adv = ret - value.detach()
        adv = (adv - adv.mean()) / (adv.std() + 1e-6)
        entropy = -(logp.exp() * logp).sum(1).mean()
        loss = -(logp.gather(1, act[:, None]).squeeze(1) * adv).mean() + F.mse_loss(value, ret) - 0.01 * entropy
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return score, loss.item(), entropy.item()


if __name__ == "__main__":
    agent, t0, scores = Reinforce(), time.time(), []
    for it in range(1, 1001):
        score, loss, ent = agent.iterate()
        scores.append(score)
        if it % 100 == 0:
            print(f"iteration {it}: return {np.mean(scores[-50:]):.3f} loss {loss:.3f} entropy {ent:.3f} "
                  f"{time.time() - t0:.1f}s", flush=True)
