"""Three warm-ups after which a model looks at its batch: by a global, by a fraction that is raised, and by a buffer."""

from types import SimpleNamespace

import torch
from torch import nn

torch.manual_seed(41)
CONFIG = {"center_from": 9}
now = SimpleNamespace(iteration=0)


def centered(x):
    return x - x.mean(0) if now.iteration >= CONFIG["center_from"] else x


class ByGlobal(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 12)

    def forward(self, x):
        return centered(torch.relu(self.layer(x)))


class ByFraction(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.share = nn.Linear(12, 12), 0.0

    def forward(self, x):
        x = torch.tanh(self.layer(x))
        return x * (1 - self.share) + x.roll(1, 0) * self.share


class ByBuffer(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(12, 3)
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        self.calls += 1
        x = self.layer(x)
        return x if self.calls <= 13 else x / x.std(0)


model = nn.ModuleList([ByGlobal(), ByFraction(), ByBuffer()])
optimizer = torch.optim.SGD(model.parameters(), 0.05)
x, y = torch.randn(90, 8), torch.randint(0, 3, (90,))
for now.iteration in range(20):
    model[1].share = 0.2 if now.iteration > 10 else 0.0
    part = torch.randperm(90)[:14]
    hidden = x[part]
    for each in model:
        hidden = each(hidden)
    loss = nn.functional.cross_entropy(hidden, y[part])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"{now.iteration} {loss.item():.6f}")
