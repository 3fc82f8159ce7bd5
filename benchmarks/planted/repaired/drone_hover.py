"""Actor-critic for a simulated drone that should hover; many environments step at once."""
import argparse

import torch
from torch import nn

GAMMA, LAMBDA = 0.99, 0.95


class Drones:
    def __init__(self, n):
        self.state = torch.randn(n, 6)

    def step(self, thrust):
        position, speed = self.state[:, :3], self.state[:, 3:]
        speed = 0.98 * speed + 0.05 * thrust
        position = position + 0.1 * speed
        lost = position.norm(dim=1) > 4
        position = torch.where(lost[:, None], torch.randn_like(position), position)
        self.state = torch.cat([position, speed * ~lost[:, None]], 1)
        return self.state, -position.norm(dim=1), lost.float()


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 128), nn.Tanh(), nn.Linear(128, 128), nn.Tanh())
        self.mean, self.value = nn.Linear(128, 3), nn.Linear(128, 1)
        self.log_std = nn.Parameter(torch.zeros(3))

    def forward(self, x):
        h = self.body(x)
        return torch.distributions.Normal(self.mean(h), self.log_std.exp()), self.value(h).squeeze(-1)


def advantages(rewards, values, lost, last):
    out = torch.zeros_like(rewards)
    carried, following = torch.zeros_like(last), last
    for t in reversed(range(len(rewards))):
        alive = 1.0 - lost[t]
        delta = rewards[t] + GAMMA * following * alive - values[t]
        carried = delta + GAMMA * LAMBDA * alive * carried
        out[t] = carried
        following = values[t]
    return out


def collect(env, policy, horizon):
    seen = [[] for _ in range(5)]
    state = env.state
    with torch.no_grad():
        for _ in range(horizon):
            dist, value = policy(state)
            action = dist.sample()
            following, reward, lost = env.step(action)
            for kept, item in zip(seen, (state, action, reward, value, lost)):
                kept.append(item)
            state = following
        last = policy(state)[1]
    return [torch.stack(kept) for kept in seen] + [last]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=200)
    args = parser.parse_args()
    torch.manual_seed(6)
    env, policy = Drones(16), Policy()
    optimizer = torch.optim.Adam(policy.parameters(), lr=3e-4)
    for epoch in range(args.epochs):
        for update in range(20):
            states, actions, rewards, values, lost, last = collect(env, policy, 16)
            advantage = advantages(rewards, values, lost, last)
            target = advantage + values
            dist, value = policy(states)
            gain = (dist.log_prob(actions).sum(-1) * (advantage - advantage.mean()) / (advantage.std() + 1e-6)).mean()
            loss = nn.functional.mse_loss(value, target) - gain - 1e-3 * dist.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
            optimizer.step()
        print(f"epoch {epoch} reward {rewards.mean().item():.3f}")


if __name__ == "__main__":
    main()
