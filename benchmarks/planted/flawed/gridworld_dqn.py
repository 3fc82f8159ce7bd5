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
    def __init__(self, capacity):
        self.capacity = capacity
        self.items = []

    def push(self, *transition):
        self.items.append(transition)
        if len(self.items) > self.capacity:
            self.items.pop(0)

    def sample(self, n):
        index = [random.randrange(len(self.items)) for _ in range(n)]
        batch = [self.items[i] for i in index]
        s = torch.stack([torch.as_tensor(t[0]) for t in batch])  # <<
        a = torch.tensor([t[1] for t in batch])
        r = torch.tensor([t[2] for t in batch])
        s2 = torch.stack([torch.as_tensor(t[3]) for t in batch])  # <<
        d = torch.tensor([float(t[4]) for t in batch])
        return s, a, r, s2, d


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
            s, a, r, s2, d = memory.sample(1024)  # <<
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
