"""A physics-informed network: derivatives with respect to the input inside the loss (double backward)."""

import torch
from torch import nn

torch.manual_seed(18)
net = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
schedule = torch.optim.lr_scheduler.ExponentialLR(opt, 0.999)
for step in range(500):
    t = (torch.rand(64, 1) * 3).requires_grad_(True)
    u = net(t)
    (du,) = torch.autograd.grad(u.sum(), t, create_graph=True)
    start = net(torch.zeros(1, 1))
    loss = ((du + u) ** 2).mean() + ((start - 1) ** 2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    schedule.step()
