"""REINFORCE on many copies of a vectorised point-mass task."""
import argparse

import torch
from torch import nn


def reset(n):
    return torch.cat([torch.rand(n, 2) * 2 - 1, torch.zeros(n, 2)], 1)


def step(state, action):
    velocity = (state[:, 2:] + 0.2 * action.clamp(-1, 1)) * 0.9
    position = state[:, :2] + 0.2 * velocity
    return torch.cat([position, velocity], 1), -position.square().sum(1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=200)
    args = parser.parse_args()
    torch.manual_seed(0)
    policy = nn.Sequential(nn.Linear(4, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 2))
    optimizer = torch.optim.SGD(policy.parameters(), lr=1e-3)
    for epoch in range(args.epochs):
        for update in range(10):
            state, log_probs, rewards = reset(512), [], []
            for _ in range(8):
                law = torch.distributions.Normal(policy(state), 0.3, validate_args=False)
                action = law.sample()
                log_probs.append(law.log_prob(action).sum(1))
                state, reward = step(state, action)
                rewards.append(reward)
            returns = torch.stack(rewards).flip(0).cumsum(0).flip(0)
            advantage = (returns - returns.mean()) / returns.std()
            loss = -(torch.stack(log_probs) * advantage).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch} return {returns[0].mean().item():.3f} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
