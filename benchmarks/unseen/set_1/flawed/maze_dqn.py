"""DQN with a convolutional Q network on small random mazes (own environment, 8 of them in parallel)."""
import argparse
import copy
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

SIZE = 12
MOVES = np.array([[-1, 0], [1, 0], [0, -1], [0, 1]])


class Mazes:
    """Batch of mazes; observation planes: walls, agent, goal."""

    def __init__(self, count, seed):
        self.rng = np.random.default_rng(seed)
        self.count = count
        self.walls = np.zeros((count, SIZE, SIZE), dtype=bool)
        self.agent = np.zeros((count, 2), dtype=int)
        self.goal = np.zeros((count, 2), dtype=int)
        self.age = np.zeros(count, dtype=int)
        for i in range(count):
            self.reset(i)

    def reset(self, i):
        walls = self.rng.random((SIZE, SIZE)) < 0.2
        walls[0] = walls[-1] = walls[:, 0] = walls[:, -1] = True
        cells = self.rng.integers(1, SIZE - 1, size=(2, 2))
        walls[cells[:, 0], cells[:, 1]] = False
        self.walls[i], self.agent[i], self.goal[i], self.age[i] = walls, cells[0], cells[1], 0

    def observe(self):
        rows = np.arange(self.count)
        planes = np.zeros((self.count, 3, SIZE, SIZE), dtype=np.float32)
        planes[:, 0] = self.walls
        planes[rows, 1, self.agent[:, 0], self.agent[:, 1]] = 1
        planes[rows, 2, self.goal[:, 0], self.goal[:, 1]] = 1
        return planes

    def step(self, action):
        rows = np.arange(self.count)
        target = self.agent + MOVES[action]
        free = ~self.walls[rows, target[:, 0], target[:, 1]]
        self.agent = np.where(free[:, None], target, self.agent)
        self.age += 1
        reached = (self.agent == self.goal).all(1)
        reward = np.where(reached, 1.0, np.where(free, -0.01, -0.05)).astype(np.float32)
        after = self.observe()
        for i in np.flatnonzero(reached | (self.age > 60)):
            self.reset(i)
        return after, reward, reached.astype(np.float32)


class Replay:
    def __init__(self, capacity, seed):
        self.obs = torch.zeros(capacity, 3, SIZE, SIZE)
        self.nxt = torch.zeros(capacity, 3, SIZE, SIZE)
        self.action = torch.zeros(capacity, dtype=torch.long)
        self.reward = torch.zeros(capacity)
        self.done = torch.zeros(capacity)
        self.gen = torch.Generator().manual_seed(seed)
        self.capacity, self.head, self.size = capacity, 0, 0

    def add(self, obs, action, reward, nxt, done):
        n = len(obs)
        idx = (self.head + torch.arange(n)) % self.capacity
        self.obs[idx], self.nxt[idx] = torch.from_numpy(obs), torch.from_numpy(nxt)
        self.action[idx], self.reward[idx] = torch.from_numpy(action), torch.from_numpy(reward)
        self.done[idx] = torch.from_numpy(done)
        self.head = (self.head + n) % self.capacity
        self.size = min(self.capacity, self.size + n)

    def sample(self, n):
        idx = torch.randint(self.size, (n,), generator=self.gen)
        return self.obs[idx], self.action[idx], self.reward[idx], self.nxt[idx], self.done[idx]


class QNet(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1), nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1), nn.ReLU(),
            nn.Conv2d(width, width, 3, stride=2, padding=1), nn.ReLU(),
        )
        self.value = nn.Linear(width * 36, 1)
        self.advantage = nn.Sequential(nn.Linear(width * 36, 128), nn.ReLU(), nn.Linear(128, 4))

    def forward(self, x):
        h = self.conv(x).flatten(1)
        adv = self.advantage(h)
        return self.value(h) + adv - adv.mean(1, keepdim=True)


class DQN:
    def __init__(self, gamma=0.97, lr=5e-4):
        self.online = QNet()
        self.target = copy.deepcopy(self.online)
        self.gamma = gamma
        self.opt = torch.optim.Adam(self.online.parameters(), lr=lr)

    @torch.no_grad()
    def act(self, obs, epsilon, rng):
        greedy = self.online(torch.from_numpy(obs)).argmax(1).numpy()
        explore = rng.random(len(obs)) < epsilon
        return np.where(explore, rng.integers(0, 4, len(obs)), greedy)

    def bootstrap(self, reward, nxt, done):
        best = self.target(nxt).max(1).values  # <<
        return reward + self.gamma * (1 - done) * best

    def learn(self, obs, action, reward, nxt, done):
        q = self.online(obs).gather(1, action[:, None]).squeeze(1)
        goal = self.bootstrap(reward, nxt, done)  # <<
        loss = F.smooth_l1_loss(q, goal)
        self.opt.zero_grad()
        loss.backward()  # <<
        self.opt.step()
        return loss.detach()

    def sync(self):
        self.target.load_state_dict(self.online.state_dict())


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=17)
    ap.add_argument("--updates", type=int, default=100)
    args = ap.parse_args()
    torch.manual_seed(0)
    rng = np.random.default_rng(1)
    envs, replay, agent = Mazes(8, seed=2), Replay(20_000, seed=3), DQN()

    obs = envs.observe()
    while replay.size < 1000:
        action = rng.integers(0, 4, 8)
        after, reward, done = envs.step(action)
        replay.add(obs, action, reward, after, done)
        obs = envs.observe()

    for epoch in range(args.epochs):
        start = time.perf_counter()
        epsilon = max(0.05, 1 - epoch / 10)
        losses, wins = [], 0.0
        for _ in range(args.updates):
            action = agent.act(obs, epsilon, rng)
            after, reward, done = envs.step(action)
            replay.add(obs, action, reward, after, done)
            wins += done.sum()
            obs = envs.observe()
            losses.append(agent.learn(*replay.sample(64)))
        agent.sync()
        print(f"epoch {epoch} eps {epsilon:.2f} loss {torch.stack(losses).mean():.5f} goals {wins:.0f} "
              f"{time.perf_counter() - start:.2f}s")


if __name__ == "__main__":
    main()
