"""An exponential moving average of the weights, used for validation after each epoch and as a teacher."""

import copy

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(6)
x = torch.randn(512, 20)
y = (x @ torch.randn(20, 3)).argmax(1)
train, val = TensorDataset(x[:400], y[:400]), TensorDataset(x[400:], y[400:])
loader, checker = DataLoader(train, batch_size=25, shuffle=True), DataLoader(val, batch_size=56)
model = nn.Sequential(nn.Linear(20, 64), nn.BatchNorm1d(64), nn.Tanh(), nn.Linear(64, 3))
average = copy.deepcopy(model).requires_grad_(False)
opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
for epoch in range(80):
    model.train()
    for a, b in loader:
        out = model(a)
        with torch.no_grad():
            taught = average(a + 0.05 * torch.randn_like(a))
        loss = F.cross_entropy(out, b) + 0.1 * F.mse_loss(out.softmax(1), taught.softmax(1))
        opt.zero_grad()
        loss.backward()
        opt.step()
        with torch.no_grad():
            for p, q in zip(model.parameters(), average.parameters()):
                q.lerp_(p, 0.01)
    average.eval()
    with torch.no_grad():
        print(epoch, sum(F.cross_entropy(average(a), b).item() for a, b in checker))
    average.train()
