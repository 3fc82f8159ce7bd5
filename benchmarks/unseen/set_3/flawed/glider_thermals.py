"""PPO for a glider that looks for thermals. Sixteen gliders fly at once, each in its own air mass."""
import argparse
import math
import time

import numpy as np
import torch
import torch.nn as nn
from torch.distributions import Categorical


class AirMass:
    """Plane of 40 x 40 with a few Gaussian up-draughts; three actions: turn left, straight on, turn right."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.reset()

    def reset(self):
        self.cx = [self.rng.uniform(0, 40) for _ in range(5)]
        self.cy = [self.rng.uniform(0, 40) for _ in range(5)]
        self.x, self.y = 20.0, 20.0
        self.heading = self.rng.uniform(-math.pi, math.pi)
        self.height, self.t = 10.0, 0
        return self.sense()

    def lift(self, x, y):
        return sum(2.2 * math.exp(-((x - a) ** 2 + (y - b) ** 2) / 18.0) for a, b in zip(self.cx, self.cy)) - 0.9

    def sense(self):
        left, right = self.heading + 0.6, self.heading - 0.6
        return [self.lift(self.x, self.y),
                self.lift(self.x + 2 * math.cos(left), self.y + 2 * math.sin(left)),
                self.lift(self.x + 2 * math.cos(right), self.y + 2 * math.sin(right)),
                self.x / 20 - 1, self.y / 20 - 1, math.cos(self.heading), math.sin(self.heading), self.height / 20]

    def step(self, a):
        self.heading += (a - 1) * -0.35
        self.x = (self.x + math.cos(self.heading)) % 40
        self.y = (self.y + math.sin(self.heading)) % 40
        climb = self.lift(self.x, self.y)
        self.height += climb
        self.t += 1
        over = self.height <= 0 or self.t >= 150
        return (self.reset() if over else self.sense()), climb * 0.1, over


class Pilot(nn.Module):
    def __init__(self, obs=8, hidden=128, actions=3):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(obs, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh())
        self.policy = nn.Linear(hidden, actions)
        self.value = nn.Linear(hidden, 1)

    def forward(self, obs):
        h = self.body(obs)
        return Categorical(logits=self.policy(h)), self.value(h).squeeze(-1)


@torch.no_grad()
def fly(model, envs, obs, horizon):
    n = len(envs)
    store = {k: torch.zeros(horizon, n) for k in ("logp", "value", "reward", "done")}
    store["obs"] = torch.zeros(horizon, n, 8)
    store["action"] = torch.zeros(horizon, n, dtype=torch.long)
    for t in range(horizon):
        for i, env in enumerate(envs):
            o = torch.tensor(obs[i])
            dist, value = model(o)  # <<
            action = dist.sample()  # <<
            store["obs"][t, i] = o
            store["action"][t, i] = action
            store["logp"][t, i] = dist.log_prob(action)  # <<
            store["value"][t, i] = value
            obs[i], store["reward"][t, i], store["done"][t, i] = env.step(action.item())
    last = model(torch.tensor(obs))[1]
    adv, running = torch.zeros(horizon, n), torch.zeros(n)
    for t in reversed(range(horizon)):
        alive = 1 - store["done"][t]
        nxt = last if t == horizon - 1 else store["value"][t + 1]
        delta = store["reward"][t] + 0.99 * nxt * alive - store["value"][t]
        running = delta + 0.99 * 0.95 * alive * running
        adv[t] = running
    store["adv"], store["ret"] = adv, adv + store["value"]
    return {k: v.flatten(0, 1) for k, v in store.items()}, obs


def update(model, opt, d, epochs=4, minibatch=128, clip=0.2):
    adv = (d["adv"] - d["adv"].mean()) / (d["adv"].std() + 1e-8)
    for _ in range(epochs):
        for idx in torch.randperm(len(adv)).split(minibatch):
            dist, value = model(d["obs"][idx])
            ratio = (dist.log_prob(d["action"][idx]) - d["logp"][idx]).exp()
            surrogate = torch.min(ratio * adv[idx], ratio.clamp(1 - clip, 1 + clip) * adv[idx]).mean()
            loss = -surrogate + 0.5 * (value - d["ret"][idx]).square().mean() - 0.01 * dist.entropy().mean()
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            opt.step()
    return loss.item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--iterations", type=int, default=75)
    ap.add_argument("--gliders", type=int, default=16)
    ap.add_argument("--horizon", type=int, default=32)
    args = ap.parse_args()
    torch.manual_seed(0)
    envs = [AirMass(100 + i) for i in range(args.gliders)]
    obs = [e.sense() for e in envs]
    model = Pilot()
    opt = torch.optim.Adam(model.parameters(), lr=3e-4)
    tic = time.time()
    for it in range(args.iterations):
        data, obs = fly(model, envs, obs, args.horizon)  # <<
        loss = update(model, opt, data)
        if it % 10 == 0:
            fps = (it + 1) * args.gliders * args.horizon / (time.time() - tic)
            print(f"iter {it:3d} reward/step {data['reward'].mean():+.4f} loss {loss:.3f} {fps:.0f} fps")


if __name__ == "__main__":
    main()
