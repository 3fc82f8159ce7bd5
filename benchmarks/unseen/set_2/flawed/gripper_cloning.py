"""Behaviour cloning of a gripper from teleoperated demonstrations (tactile arrays and joint states)."""
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn


class Demos:
    """Demonstrations as lists of time steps, the way the teleoperation logger hands them over."""

    def __init__(self, episodes=160, length=60, seed=12):
        rng = np.random.default_rng(seed)
        pads = rng.normal(0, 1, (3, 10, 10)).astype(np.float32)
        self.episodes = []
        for _ in range(episodes):
            size, slip = rng.uniform(0.2, 1.0), 0.0
            steps = []
            width = 1.2
            for _ in range(length):
                contact = max(0.0, size - width)
                slip = 0.8 * slip + rng.normal(0, 0.1)
                tactile = contact * pads[0] + slip * pads[1] + 0.2 * rng.standard_normal((10, 10), dtype=np.float32)
                command = np.array([np.clip(0.3 - contact, -1, 1) * -0.5, -slip], np.float32)
                steps.append({"tactile": tactile.astype(np.float32),
                              "joints": np.array([width, contact, slip, size], np.float32),
                              "command": command})
                width += 0.1 * float(command[0])
            self.episodes.append(steps)

    def tensors(self, history=4):
        x, y = [], []
        for steps in self.episodes:
            rows = np.stack([np.concatenate([s["tactile"].ravel(), s["joints"][:2]]) for s in steps])
            for t in range(history, len(steps)):
                x.append(rows[t - history:t].ravel())
                y.append(steps[t]["command"])
        return torch.from_numpy(np.stack(x)), torch.from_numpy(np.stack(y))


class GripperPolicy(nn.Module):
    def __init__(self, inputs, width=512):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(inputs, width), nn.ELU(), nn.Linear(width, width), nn.ELU(),
                                 nn.Linear(width, width), nn.ELU(), nn.Linear(width, 2))

    def forward(self, x):
        return self.net(x)


class Trainer:
    def __init__(self, demos, folder, epochs=12, batch=64, lr=3e-4, save_every=50, keep=2):
        self.demos = demos
        self.folder = Path(folder)
        self.epochs, self.batch = epochs, batch
        self.save_every, self.keep = save_every, keep
        self.x, self.y = demos.tensors()
        self.policy = GripperPolicy(self.x.shape[1])
        self.opt = torch.optim.Adam(self.policy.parameters(), lr=lr)
        self.step, self.epoch = 0, 0
        self.history = []

    def save(self):
        torch.save(self, self.folder / f"trainer_{self.step:06d}.pt")  # <<
        for old in sorted(self.folder.glob("trainer_*.pt"))[:-self.keep]:
            old.unlink()

    def train_step(self, rows):
        pred = self.policy(self.x[rows])
        loss = nn.functional.mse_loss(pred, self.y[rows])
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss.item()

    def run(self):
        for self.epoch in range(self.epochs):
            t0 = time.time()
            losses = []
            for rows in torch.randperm(len(self.x)).split(self.batch):
                losses.append(self.train_step(rows))
                self.step += 1
                if self.step % self.save_every == 0:
                    self.save()  # <<
            self.history.append(float(np.mean(losses)))
            print(f"epoch {self.epoch}  step {self.step}  mse {self.history[-1]:.5f}  {time.time() - t0:.1f}s", flush=True)


if __name__ == "__main__":
    torch.manual_seed(12)
    with tempfile.TemporaryDirectory(prefix="gripper_") as folder:
        Trainer(Demos(), folder).run()
