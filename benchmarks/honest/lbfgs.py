"""LBFGS with a closure and a strong Wolfe line search, full batches."""

import torch
from torch import nn

torch.manual_seed(9)
x = torch.linspace(-3, 3, 200)[:, None]
y = torch.sin(2 * x) + 0.1 * torch.randn(200, 1)
model = nn.Sequential(nn.Linear(1, 30), nn.Tanh(), nn.Linear(30, 1))
opt = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=4, history_size=5, line_search_fn="strong_wolfe")
for step in range(400):

    def closure():
        opt.zero_grad()
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        return loss

    loss = opt.step(closure)
