"""A compiled model that draws by functions: inside of its graph no rank can draw for the whole batch."""

import torch
from torch import nn

torch.manual_seed(35)


class Shaken(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(6, 12), nn.Linear(12, 2)

    def forward(self, x):
        x = nn.functional.dropout(torch.relu(self.first(x)), 0.3, self.training)
        return self.second(x + 0.1 * torch.rand_like(x))


model = Shaken()
compiled = torch.compile(model, backend="eager")
optimizer = torch.optim.SGD(model.parameters(), 0.1)
x, y = torch.randn(64, 6), torch.randint(0, 2, (64,))
for step in range(8):
    part = torch.randperm(64)[:12]
    loss = nn.functional.cross_entropy(compiled(x[part]), y[part])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"{step} {loss.item():.6f}")
