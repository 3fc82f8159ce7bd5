"""Actor-critic for robots in a warehouse that see a square of cells around them."""
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

VIEW = 15          # the robot sees VIEW x VIEW cells
HALF = VIEW // 2
MOVES = [(-1, 0), (1, 0), (0, -1), (0, 1)]


class Warehouse:
    FREE, SHELF, PARCEL, GOAL = range(4)

    def __init__(self, side, seed):
        self.side = side
        self.rng = np.random.default_rng(seed)
        self.reset()

    def reset(self):
        self.cells = np.zeros((self.side, self.side), dtype=np.int64)
        self.cells[self.rng.random(self.cells.shape) < 0.15] = self.SHELF
        self.cells[self.rng.random(self.cells.shape) < 0.05] = self.PARCEL
        self.row, self.col = self.rng.integers(2, self.side - 2, 2)
        self.cells[self.row, self.col] = self.FREE
        self.visits = np.zeros((self.side, self.side), dtype=np.float32)
        self.t = 0
        return self.view()

    def view(self):
        seen = np.zeros((5, VIEW, VIEW), dtype=np.float32)
        for i in range(VIEW):  # <<
            for j in range(VIEW):  # <<
                r, c = self.row + i - HALF, self.col + j - HALF
                if 0 <= r < self.side and 0 <= c < self.side:
                    seen[self.cells[r, c], i, j] = 1.0
                    seen[4, i, j] = min(self.visits[r, c], 3.0) / 3.0
                else:
                    seen[self.SHELF, i, j] = 1.0
        return seen

    def step(self, a):
        dr, dc = MOVES[a]
        r, c = self.row + dr, self.col + dc
        reward = -0.01
        if 0 <= r < self.side and 0 <= c < self.side and self.cells[r, c] != self.SHELF:
            self.row, self.col = r, c
            if self.cells[r, c] == self.PARCEL:
                reward, self.cells[r, c] = 1.0, self.FREE
        else:
            reward = -0.1
        self.visits[self.row, self.col] += 1
        self.t += 1
        done = self.t >= 120
        return (self.reset() if done else self.view()), reward, done  # <<


class Fleet:
    def __init__(self, n, side=30):
        self.robots = [Warehouse(side, seed=k) for k in range(n)]

    def start(self):
        return torch.from_numpy(np.stack([r.view() for r in self.robots]))

    def step(self, actions):
        out = [r.step(a) for r, a in zip(self.robots, actions.tolist())]  # <<
        obs, rew, done = zip(*out)
        return torch.from_numpy(np.stack(obs)), torch.tensor(rew), torch.tensor(done, dtype=torch.float32)


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(5, 16, 3, stride=2, padding=1), nn.ReLU(),
                                  nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU(), nn.Flatten())
        self.fc = nn.Sequential(nn.Linear(32 * 16, 128), nn.ReLU())
        self.pi, self.v = nn.Linear(128, len(MOVES)), nn.Linear(128, 1)

    def forward(self, x):
        h = self.fc(self.conv(x))
        return self.pi(h), self.v(h).squeeze(-1)


def train(updates=300, robots=16, horizon=16, gamma=0.97):
    torch.manual_seed(5)
    fleet = Fleet(robots)
    net = ActorCritic()
    opt = torch.optim.RMSprop(net.parameters(), lr=7e-4, eps=1e-5)
    obs = fleet.start()
    tic, smooth = time.time(), 0.0
    for u in range(updates):
        seen, acts, rews, dones = [], [], [], []
        with torch.no_grad():
            for _ in range(horizon):
                logits, _ = net(obs)
                a = torch.multinomial(logits.softmax(-1), 1).squeeze(1)
                nxt, r, d = fleet.step(a)  # <<
                seen.append(obs), acts.append(a), rews.append(r), dones.append(d)
                obs = nxt
            ret = net(obs)[1]
        returns = []
        for r, d in zip(reversed(rews), reversed(dones)):
            ret = r + gamma * ret * (1 - d)
            returns.insert(0, ret)
        returns, acts = torch.cat(returns), torch.cat(acts)
        logits, values = net(torch.cat(seen))
        logp = F.log_softmax(logits, -1)
        adv = (returns - values).detach()
        loss = (-(adv * logp.gather(1, acts[:, None]).squeeze(1)).mean() + 0.5 * F.mse_loss(values, returns)
                + 0.01 * (logp.exp() * logp).sum(-1).mean())
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        opt.step()
        smooth = 0.95 * smooth + 0.05 * torch.stack(rews).mean().item()
        if u % 30 == 0:
            print(f"update {u:4d} reward {smooth:+.4f} loss {loss.item():+.4f} {(u + 1) * robots * horizon / (time.time() - tic):.0f} steps/s")


if __name__ == "__main__":
    train()
