"""PPO on a batch of reaching arms; several passes of minibatches over each rollout."""
import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=200)
parser.add_argument("--clip", type=float, default=0.2)
args = parser.parse_args()
torch.manual_seed(24)
ARMS, HORIZON = 64, 16


def reach(joints):
    angle = joints.cumsum(1)
    return torch.stack([angle.cos().sum(1), angle.sin().sum(1)], 1)


class Agent(nn.Module):
    def __init__(self, width=384):
        super().__init__()
        self.actor, self.critic = self.mlp(width, 4), self.mlp(width, 1)
        self.log_std = nn.Parameter(torch.full((4,), -1.0))

    def mlp(self, width, out):
        return nn.Sequential(nn.Linear(6, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, out))

    def forward(self, seen):
        return torch.distributions.Normal(self.actor(seen), self.log_std.exp()), self.critic(seen).squeeze(1)


def rollout(agent):
    joints, goal = torch.zeros(ARMS, 4), 2 * torch.randn(ARMS, 2)
    kept = []
    with torch.no_grad():
        for _ in range(HORIZON):
            seen = torch.cat([joints, goal], 1)
            dist, value = agent(seen)
            action = dist.sample()
            joints = joints + 0.2 * action
            reward = -(reach(joints) - goal).norm(dim=1)
            kept.append((seen, action, dist.log_prob(action).sum(1), value, reward))
    seen, action, log_prob, value, reward = (torch.stack(part) for part in zip(*kept))
    returns = reward.flip(0).cumsum(0).flip(0) / HORIZON
    return [part.flatten(0, 1) for part in (seen, action, log_prob, returns, returns - value)]


agent = Agent()
optimizer = torch.optim.Adam(agent.parameters(), lr=3e-4, fused=True)
for epoch in range(args.epochs):
    data = rollout(agent)
    for _ in range(4):
        for index in torch.randperm(ARMS * HORIZON).split(128):
            seen, action, old, returns, advantage = (part[index] for part in data)
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
            dist, value = agent(seen)
            ratio = (dist.log_prob(action).sum(1) - old).exp()
            gain = torch.min(ratio * advantage, ratio.clamp(1 - args.clip, 1 + args.clip) * advantage).mean()
            loss = nn.functional.mse_loss(value, returns) - gain - 0.01 * dist.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()
    print(f"epoch {epoch} return {data[3].mean().item():.3f}")
