# A2C: bring a barge to the dock. 16 barges in parallel, 1D position + drift, 3 actions.
# homework 3, part (c): GAE(lambda)
import numpy as np
import torch
import torch.nn as nn
from torch.distributions import Categorical

GAMMA, LAM = 0.99, 0.95
N_ENVS, HORIZON = 16, 128
UPDATES = 300
ENT_COEF, VF_COEF = 0.01, 0.5


class BargeEnv:
    def __init__(self, n, seed):
        self.rng = np.random.default_rng(seed)
        self.n = n
        self.state = np.zeros((n, 4))
        self.age = np.zeros(n, int)
        self._reset(np.ones(n, bool))

    def _reset(self, which):
        k = int(which.sum())
        if k:
            self.state[which, 0] = self.rng.uniform(-8, 8, k)
            self.state[which, 1] = 0
            self.state[which, 2] = self.rng.normal(0, 0.15, k)
            self.state[which, 3] = self.rng.uniform(0.7, 1.3, k)
            self.age[which] = 0

    def obs(self):
        return torch.as_tensor(self.state, dtype=torch.float32)

    def step(self, action):
        pos, vel, current, mass = self.state.T
        vel = 0.96 * vel + 0.2 * (action - 1) / mass + 0.05 * current
        pos = pos + 0.3 * vel
        self.state[:, 0], self.state[:, 1] = pos, vel
        self.age += 1
        docked = (np.abs(pos) < 0.3) & (np.abs(vel) < 0.3)
        lost = (np.abs(pos) > 12) | (self.age >= 150)
        reward = -0.02 * np.abs(pos) - 0.01 * (action != 1) + 5.0 * docked - 2.0 * (np.abs(pos) > 12)
        done = docked | lost
        self._reset(done)
        return self.obs(), reward, done.astype(float), docked.sum()


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
        self.pi = nn.Linear(64, 3)
        self.v = nn.Linear(64, 1)

    def forward(self, s):
        h = self.body(s)
        return self.pi(h), self.v(h).squeeze(-1)


def gae(rewards, values, dones):
    """A_t = sum_k (gamma * lambda)^k delta_{t+k}, cut at episode ends"""
    T = len(rewards)
    adv = np.zeros_like(rewards)
    for t in range(T):
        coef = np.ones(rewards.shape[1])
        for k in range(t, T):  # <<
            delta = rewards[k] + GAMMA * (1 - dones[k]) * values[k + 1] - values[k]  # <<
            adv[t] += coef * delta  # <<
            coef = coef * GAMMA * LAM * (1 - dones[k])  # <<
    return adv


def main():
    torch.manual_seed(0)
    env = BargeEnv(N_ENVS, seed=0)
    net = ActorCritic()
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    s = env.obs()
    for update in range(1, UPDATES + 1):
        states, actions, rewards, values, dones, n_docked = [], [], [], [], [], 0
        with torch.no_grad():
            for _ in range(HORIZON):
                logits, v = net(s)
                a = torch.multinomial(logits.softmax(-1), 1).squeeze(1)
                states.append(s)
                actions.append(a)
                values.append(v.numpy())
                s, r, d, docked = env.step(a.numpy())
                rewards.append(r)
                dones.append(d)
                n_docked += docked
            values.append(net(s)[1].numpy())

        rewards, values, dones = np.stack(rewards), np.stack(values).astype(float), np.stack(dones)
        adv = gae(rewards, values, dones)  # <<
        ret = torch.as_tensor((adv + values[:-1]).ravel(), dtype=torch.float32)
        adv = torch.as_tensor(adv.ravel(), dtype=torch.float32)
        adv = (adv - adv.mean()) / (adv.std() + 1e-8)

        logits, v = net(torch.cat(states))
        dist = Categorical(logits=logits)
        pg = -(dist.log_prob(torch.cat(actions)) * adv).mean()
        vf = (v - ret).pow(2).mean()
        ent = dist.entropy().mean()
        loss = pg + VF_COEF * vf - ENT_COEF * ent
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        opt.step()

        if update % 25 == 0:
            print(f"upd {update:3d} | reward/step {rewards.mean():+.4f} | docked {n_docked:3d} | vf {vf.item():.3f} | ent {ent.item():.3f}")


if __name__ == "__main__":
    main()
