"""DQN on a tiny grid, no gym needed."""
import argparse
import copy
import random

import numpy as np
import torch
import torch.nn as nn


class Grid:
    """Walk from a random cell to the goal; the observation is an image of the board."""

    def __init__(self, side, rng):
        self.side, self.rng = side, rng
        self.goal = (side - 1, side - 1)

    def reset(self):
        self.at = tuple(self.rng.integers(0, self.side, 2))
        return self.observe()

    def observe(self):
        board = np.zeros((2, self.side, self.side), dtype=np.float32)
        board[0][self.at] = 1
        board[1][self.goal] = 1
        return board

    def step(self, action):
        dy, dx = ((0, 1), (1, 0), (0, -1), (-1, 0))[action]
        self.at = (min(max(self.at[0] + dy, 0), self.side - 1), min(max(self.at[1] + dx, 0), self.side - 1))
        done = self.at == self.goal
        return self.observe(), 1.0 if done else -0.02, done


class Memory:
    def __init__(self, capacity, side=6):
        self.capacity = capacity
        self.count = 0
        self.s = torch.zeros(capacity, 2, side, side)
        self.s2 = torch.zeros(capacity, 2, side, side)
        self.a = torch.zeros(capacity, dtype=torch.long)
        self.r = torch.zeros(capacity)
        self.d = torch.zeros(capacity)

    def push(self, s, a, r, s2, d):
        i = self.count % self.capacity
        self.s[i], self.s2[i] = torch.from_numpy(s), torch.from_numpy(s2)
        self.a[i], self.r[i], self.d[i] = a, r, float(d)
        self.count += 1

    def sample(self, n):
        size = min(self.count, self.capacity)
        first = self.count - size
        index = torch.tensor([(first + random.randrange(size)) % self.capacity for _ in range(n)])
        return self.s[index], self.a[index], self.r[index], self.s2[index], self.d[index]


def make_net(side):
    return nn.Sequential(nn.Flatten(), nn.Linear(2 * side * side, 128), nn.ReLU(), nn.Linear(128, 4))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--updates", type=int, default=60)
    args = parser.parse_args()
    random.seed(0)
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    env, memory = Grid(6, rng), Memory(20000)
    net = make_net(6)
    target = copy.deepcopy(net)
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-4)
    state = env.reset()
    for _ in range(600):
        action = random.randrange(4)
        nxt, reward, done = env.step(action)
        memory.push(state, action, reward, nxt, done)
        state = env.reset() if done else nxt
    for epoch in range(args.epochs):
        total = 0.0
        for _ in range(args.updates):
            with torch.no_grad():
                greedy = net(torch.from_numpy(state)[None]).argmax().item()
            action = greedy if random.random() > 0.2 else random.randrange(4)
            nxt, reward, done = env.step(action)
            memory.push(state, action, reward, nxt, done)
            state = env.reset() if done else nxt
            s, a, r, s2, d = memory.sample(1024)
            with torch.no_grad():
                goal = r + 0.97 * (1 - d) * target(s2).amax(1)
            q = net(s).gather(1, a[:, None]).squeeze(1)
            loss = nn.functional.smooth_l1_loss(q, goal)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        target.load_state_dict(net.state_dict())
        print(f"epoch {epoch} td loss {total / args.updates:.5f}")


if __name__ == "__main__":
    main()
