"""REINFORCE on a toy problem: the data come from the model itself, a baseline network has its own optimizer."""

import torch
from torch import nn

torch.manual_seed(17)
policy = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 3))
value = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 1))
op, ov = torch.optim.Adam(policy.parameters(), lr=3e-3), torch.optim.Adam(value.parameters(), lr=3e-3)
rule = torch.randn(4, 3)
for step in range(600):
    states = torch.randn(64, 4)
    choice = torch.distributions.Categorical(logits=policy(states))
    actions = choice.sample()
    rewards = (states @ rule).gather(1, actions[:, None]).squeeze(1)
    advantage = rewards - value(states).squeeze(1)
    loss_p = -(choice.log_prob(actions) * advantage.detach()).mean()
    loss_v = advantage.pow(2).mean()
    op.zero_grad()
    ov.zero_grad()
    (loss_p + loss_v).backward()
    op.step()
    ov.step()
