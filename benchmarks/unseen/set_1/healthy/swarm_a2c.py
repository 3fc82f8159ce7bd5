"""Advantage actor-critic on a batch of particle-herding worlds; the worlds are simulated together in numpy."""
import argparse
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class Herding:
    """One dog, twelve sheep per world. Sheep flee from the dog and keep apart; reward: tight flock near the origin."""

    sheep = 12
    obs_dim = 2 + 2 * sheep + 2 * sheep
    actions = 9

    def __init__(self, worlds, seed):
        self.rng = np.random.default_rng(seed)
        self.worlds = worlds
        self.pos = self.rng.uniform(-2, 2, (worlds, self.sheep, 2)).astype(np.float32)
        self.dog = self.rng.uniform(-2, 2, (worlds, 2)).astype(np.float32)
        self.age = self.rng.integers(0, 80, worlds)
        angle = np.arange(8) * np.pi / 4
        self.moves = np.concatenate([[[0, 0]], 0.25 * np.stack([np.cos(angle), np.sin(angle)], 1)]).astype(np.float32)

    def observe(self):
        rel = self.pos - self.dog[:, None]
        return np.concatenate([self.dog, rel.reshape(self.worlds, -1), self.pos.reshape(self.worlds, -1)], 1)

    def step(self, action):
        self.dog = np.clip(self.dog + self.moves[action], -3, 3)
        away = self.pos - self.dog[:, None]
        push = away / (0.2 + (away ** 2).sum(-1, keepdims=True))
        gap = self.pos[:, :, None] - self.pos[:, None]
        apart = (gap / (0.05 + (gap ** 2).sum(-1, keepdims=True))).sum(2)
        drift = 0.01 * self.rng.standard_normal(self.pos.shape).astype(np.float32)
        self.pos = np.clip(self.pos + 0.08 * push + 0.002 * apart + drift, -3, 3)
        centre = self.pos.mean(1)
        spread = ((self.pos - centre[:, None]) ** 2).sum(-1).mean(1)
        reward = -(0.2 * spread + 0.3 * (centre ** 2).sum(-1)).astype(np.float32)
        self.age += 1
        done = self.age >= 80
        if done.any():
            n = int(done.sum())
            self.pos[done] = self.rng.uniform(-2, 2, (n, self.sheep, 2))
            self.dog[done] = self.rng.uniform(-2, 2, (n, 2))
            self.age[done] = 0
        return self.observe(), reward, done


class Net(nn.Module):
    def __init__(self, width=256):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(Herding.obs_dim, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
                                  nn.Linear(width, width), nn.ReLU())
        self.pi = nn.Linear(width, Herding.actions)
        self.v = nn.Linear(width, 1)

    def forward(self, obs):
        h = self.body(obs)
        return self.pi(h), self.v(h).squeeze(-1)


@torch.inference_mode()
def play(env, net, obs, length, gen):
    store = torch.empty(length, env.worlds, Herding.obs_dim)
    act = torch.empty(length, env.worlds, dtype=torch.long)
    reward, alive = np.empty((length, env.worlds), np.float32), np.empty((length, env.worlds), np.float32)
    for t in range(length):
        store[t] = torch.from_numpy(obs)
        logits, _ = net(store[t])
        act[t] = torch.multinomial(logits.softmax(-1), 1, generator=gen).squeeze(1)
        obs, reward[t], done = env.step(act[t].numpy())
        alive[t] = 1.0 - done
    tail = net(torch.from_numpy(obs))[1]
    return obs, store, act, torch.from_numpy(reward), torch.from_numpy(alive), tail


def returns(reward, alive, tail, gamma=0.98):
    out = torch.empty_like(reward)
    for t in reversed(range(len(reward))):
        tail = reward[t] + gamma * alive[t] * tail
        out[t] = tail
    return out


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=36)
    ap.add_argument("--updates", type=int, default=20)
    args = ap.parse_args()
    torch.manual_seed(3)
    gen = torch.Generator().manual_seed(4)
    env, net = Herding(256, seed=5), Net()
    opt = torch.optim.RMSprop(net.parameters(), lr=5e-4, alpha=0.99)
    obs = env.observe()
    for epoch in range(args.epochs):
        began = time.perf_counter()
        score = torch.zeros(())
        for _ in range(args.updates):
            obs, s, a, r, alive, tail = play(env, net, obs, 8, gen)
            goal = returns(r, alive, tail.clone()).flatten()
            logits, v = net(s.clone().flatten(0, 1))
            logp = logits.log_softmax(-1)
            adv = goal - v.detach()
            policy = -(logp.gather(1, a.clone().view(-1, 1)).squeeze(1) * adv).mean()
            entropy = -(logp.exp() * logp).sum(-1).mean()
            loss = policy + 0.5 * F.mse_loss(v, goal) - 0.01 * entropy
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            opt.step()
            score += r.mean()
        print(f"epoch {epoch}: reward {score.item() / args.updates:.4f} ({time.perf_counter() - began:.2f}s)")


if __name__ == "__main__":
    main()
