import numpy as np
import torch

from .env import KeyDoorGrid


class Collector:
    """Plays `n_envs` copies of the environment for `horizon` steps each and computes GAE targets."""

    def __init__(self, n_envs, horizon, gamma=0.98, lam=0.95, seed=0):
        self.envs = [KeyDoorGrid(seed=seed * 1000 + i) for i in range(n_envs)]
        self.obs = [e.reset() for e in self.envs]
        self.horizon, self.gamma, self.lam = horizon, gamma, lam
        self.running = np.zeros(n_envs)
        self.finished = []

    @torch.no_grad()
    def collect(self, net):
        T, N = self.horizon, len(self.envs)
        obs = np.empty((T, N, *self.obs[0].shape), np.float32)
        act, logp = np.empty((T, N), np.int64), np.empty((T, N), np.float32)
        val, rew, done = np.empty((T + 1, N), np.float32), np.empty((T, N), np.float32), np.empty((T, N), np.float32)
        for t in range(T):
            for i, env in enumerate(self.envs):
                obs[t, i] = self.obs[i]
                dist, v = net(torch.from_numpy(self.obs[i])[None])  # <<
                a = dist.sample()  # <<
                act[t, i], logp[t, i], val[t, i] = a.item(), dist.log_prob(a).item(), v.item()  # <<
                self.obs[i], rew[t, i], over = env.step(act[t, i])
                done[t, i] = over
                self.running[i] += rew[t, i]
                if over:
                    self.finished.append(self.running[i])
                    self.running[i] = 0.0
                    self.obs[i] = env.reset()
        val[T] = net(torch.from_numpy(np.stack(self.obs)))[1].numpy()
        adv, last = np.zeros((T, N), np.float32), np.zeros(N, np.float32)
        for t in reversed(range(T)):
            delta = rew[t] + self.gamma * val[t + 1] * (1 - done[t]) - val[t]
            last = delta + self.gamma * self.lam * (1 - done[t]) * last
            adv[t] = last
        flat = [obs.reshape(-1, *obs.shape[2:]), act.ravel(), logp.ravel(), adv.ravel(), (adv + val[:T]).ravel()]
        return [torch.from_numpy(x) for x in flat]
