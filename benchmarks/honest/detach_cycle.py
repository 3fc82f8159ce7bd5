"""Truncated backpropagation through time by hand: the state of a GRU is carried over and detached."""

import torch
from torch import nn

torch.manual_seed(12)
stream = torch.sin(torch.arange(6000) * 0.07) + 0.1 * torch.randn(6000)
chunks = stream[:6000].view(10, 600, 1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru, self.head = nn.GRU(1, 24, batch_first=True), nn.Linear(24, 1)

    def forward(self, x, h):
        out, h = self.gru(x, h)
        return self.head(out), h


net = Net()
opt = torch.optim.Adam(net.parameters(), lr=3e-3)
for epoch in range(40):
    state = torch.zeros(1, 10, 24)
    for t in range(0, 580, 20):
        out, state = net(chunks[:, t : t + 20], state)
        state = state.detach()
        loss = ((out - chunks[:, t + 1 : t + 21]) ** 2).mean()
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.1)
        opt.step()
