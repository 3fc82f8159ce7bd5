"""A recurrent net whose first dimension is time: the batch is the second one, of the states, too."""

import torch
from torch import nn

torch.manual_seed(10)


class Sequence(nn.Module):
    def __init__(self):
        super().__init__()
        self.recurrent, self.head = nn.LSTM(6, 12, num_layers=2), nn.Linear(12, 6)

    def forward(self, x, state):
        out, state = self.recurrent(x, state)
        return self.head(out), state


model = Sequence()
optimizer = torch.optim.Adam(model.parameters(), 1e-2)
state = (torch.zeros(2, 10, 12), torch.zeros(2, 10, 12))
for step in range(10):
    x = torch.randn(7, 10, 6).cumsum(0)
    out, state = model(x[:-1], state)
    state = tuple(one.detach() for one in state)
    loss = nn.functional.mse_loss(out, x[1:])
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_value_(model.parameters(), 0.5)
    optimizer.step()
    print(f"{step} {loss.item():.6f}")
