"""Models that tell others of their batches: a list of the script, a meter of their own, a line that they print."""

import torch
from torch import nn

torch.manual_seed(43)
history, total = [], 0


class Mean:
    def __init__(self):
        self.sum, self.number = 0.0, 0

    def add(self, values):
        self.sum, self.number = self.sum + values.sum().item(), self.number + values.numel()


def take_down(x):
    global total
    total += len(x)
    history.append(len(x))


class Told(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 10)

    def forward(self, x):
        take_down(x)
        return torch.relu(self.layer(x))


class Metered(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.mean = nn.Linear(10, 10), Mean()

    def forward(self, x):
        x = torch.tanh(self.layer(x))
        self.mean.add(x.detach())
        return x


class Printing(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(10, 2)

    def forward(self, x):
        print("given", tuple(x.shape))
        return self.layer(x)


model = nn.ModuleList([Told(), Metered(), Printing()])
optimizer = torch.optim.Adam(model.parameters(), 1e-2)
x, y = torch.randn(70, 6), torch.randint(0, 2, (70,))
for step in range(8):
    part = torch.randperm(70)[:9]
    loss = nn.functional.cross_entropy(model[2](model[1](model[0](x[part]))), y[part])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"{step} {loss.item():.6f} {model[1].mean.sum / model[1].mean.number:.6f}")
print(total, history)
