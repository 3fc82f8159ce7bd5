"""Two heads, losses balanced by learned weights, parameter groups with different rates, a step schedule."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(14)
x = torch.randn(480, 3, 10, 10)
kind, amount = (x[:, 0].mean((1, 2)) > 0).long(), x[:, 1].std((1, 2))[:, None]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 16, 3), nn.InstanceNorm2d(16, affine=True), nn.ELU(), nn.AdaptiveAvgPool2d(2), nn.Flatten()
        )
        self.kind, self.amount = nn.Linear(64, 2), nn.Linear(64, 1)
        self.log_weights = nn.Parameter(torch.zeros(2))

    def forward(self, x):
        h = self.body(x)
        return self.kind(h), self.amount(h)


net = Net()
slow, fast = list(net.body.parameters()), [p for n, p in net.named_parameters() if not n.startswith("body")]
opt = torch.optim.SGD([{"params": slow, "lr": 0.01}, {"params": fast, "lr": 0.05}], lr=0.1, momentum=0.9)
schedule = torch.optim.lr_scheduler.StepLR(opt, 2, 0.7)
for epoch in range(40):
    for a, k, m in DataLoader(TensorDataset(x, kind, amount), batch_size=30, shuffle=True):
        p, q = net(a)
        w = net.log_weights
        loss = (-w[0]).exp() * F.cross_entropy(p, k) + (-w[1]).exp() * F.l1_loss(q, m) + w.sum()
        opt.zero_grad()
        loss.backward()
        opt.step()
    schedule.step()
