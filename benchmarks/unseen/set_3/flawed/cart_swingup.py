# Double DQN on a cart-pole swing-up, everything in one file.
import collections
import math
import random
import time

import numpy as np
import torch
import torch.nn as nn

SEED = 4
GAMMA = 0.99
BATCH_SIZE = 512
CAPACITY = 120_000
WARMUP = 60_000
TOTAL_STEPS = 4_000
TARGET_EVERY = 250
FORCES = (-10.0, 0.0, 10.0)

Transition = collections.namedtuple("Transition", "state action reward next_state done")


class CartSwingUp:
    def __init__(self):
        self.rng = np.random.default_rng(SEED)

    def reset(self):
        self.x, self.v, self.th, self.w = 0.0, 0.0, math.pi + self.rng.normal(0, 0.1), 0.0
        self.t = 0
        return self.obs()

    def obs(self):
        return np.array([self.x, self.v, math.cos(self.th), math.sin(self.th), self.w], dtype=np.float32)

    def step(self, a):
        f, s, c = FORCES[a], math.sin(self.th), math.cos(self.th)
        temp = (f + 0.05 * self.w ** 2 * s) / 1.1
        wacc = (9.8 * s - c * temp) / (0.5 * (4 / 3 - 0.1 * c * c / 1.1))
        xacc = temp - 0.05 * wacc * c / 1.1
        self.x += 0.02 * self.v
        self.v += 0.02 * xacc
        self.th += 0.02 * self.w
        self.w += 0.02 * wacc
        self.t += 1
        out = abs(self.x) > 3.0
        reward = math.cos(self.th) - (5.0 if out else 0.0)
        return self.obs(), reward, out, out or self.t >= 400


class ReplayMemory:
    def __init__(self, capacity):
        self.memory = collections.deque(maxlen=capacity)

    def push(self, *args):
        self.memory.append(Transition(*args))

    def sample(self, n):
        batch = random.sample(self.memory, n)  # <<
        states, actions, rewards, nexts, dones = zip(*batch)
        return (torch.tensor(states), torch.tensor(actions), torch.tensor(rewards, dtype=torch.float32),  # <<
                torch.tensor(nexts), torch.tensor(dones, dtype=torch.float32))  # <<

    def __len__(self):
        return len(self.memory)


def mlp():
    return nn.Sequential(nn.Linear(5, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, len(FORCES)))


random.seed(SEED)
torch.manual_seed(SEED)
env = CartSwingUp()
q, target = mlp(), mlp()
target.load_state_dict(q.state_dict())
optimizer = torch.optim.Adam(q.parameters(), lr=5e-4)
memory = ReplayMemory(CAPACITY)

state = env.reset()
for _ in range(WARMUP):
    a = random.randrange(len(FORCES))
    nxt, r, terminal, over = env.step(a)
    memory.push(state, a, r, nxt, terminal)
    state = env.reset() if over else nxt
print("warm-up done,", len(memory), "transitions")

returns, ep_return = collections.deque([0.0], maxlen=20), 0.0
tic = time.time()
for step in range(1, TOTAL_STEPS + 1):
    eps = max(0.05, 1.0 - step / 1500)
    if random.random() < eps:
        a = random.randrange(len(FORCES))
    else:
        with torch.no_grad():
            a = int(q(torch.from_numpy(state)).argmax())
    nxt, r, terminal, over = env.step(a)
    memory.push(state, a, r, nxt, terminal)
    ep_return += r
    state = nxt
    if over:
        returns.append(ep_return)
        ep_return, state = 0.0, env.reset()

    s, acts, rews, s2, done = memory.sample(BATCH_SIZE)  # <<
    with torch.no_grad():
        best = q(s2).argmax(1, keepdim=True)
        y = rews + GAMMA * (1 - done) * target(s2).gather(1, best).squeeze(1)
    loss = nn.functional.smooth_l1_loss(q(s).gather(1, acts[:, None]).squeeze(1), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

    if step % TARGET_EVERY == 0:
        target.load_state_dict(q.state_dict())
        print(f"step {step} loss {loss.item():.4f} eps {eps:.2f} return {np.mean(returns):.1f} "
              f"{step / (time.time() - tic):.0f} steps/s")
