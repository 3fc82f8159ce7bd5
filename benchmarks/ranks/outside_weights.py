"""Weights that a model uses and does not have: a table of the script's own, and a layer in a plain list."""

import torch
from torch import nn

torch.manual_seed(33)
table = nn.Parameter(torch.randn(7, 6) / 3)


class Borrowing(nn.Module):
    def __init__(self, lent):
        super().__init__()
        self.inner, self.lent = nn.Linear(6, 6), [lent]

    def forward(self, kinds, x):
        return self.lent[0](torch.tanh(self.inner(x)) + table[kinds])


lent = nn.Linear(6, 3)
model = Borrowing(lent)
optimizer = torch.optim.SGD([*model.parameters(), *lent.parameters(), table], 0.2, momentum=0.5)
kinds, x, y = torch.randint(0, 7, (70,)), torch.randn(70, 6), torch.randint(0, 3, (70,))
for step in range(12):
    part = torch.randperm(70)[:10]
    loss = nn.functional.cross_entropy(model(kinds[part], x[part]), y[part])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"{step} {loss.item():.6f} {table.grad.norm().item():.6f} {lent.weight.grad.norm().item():.6f}")
