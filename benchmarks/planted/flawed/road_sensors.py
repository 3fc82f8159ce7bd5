import argparse

import torch
import torch.nn.functional as F
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=60)
args = parser.parse_args()
torch.manual_seed(4)

SENSORS, STEPS_BACK = 420, 12
places = torch.rand(SENSORS, 2)
near = (torch.cdist(places, places) < 0.12).float()


class GraphLayer(nn.Module):
    def __init__(self, width_in, width_out):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width_in, width_out) * width_in**-0.5)
        self.bias = nn.Parameter(torch.zeros(width_out))

    def forward(self, x, roads):
        degree = (roads + torch.eye(len(roads))).sum(1).rsqrt()
        spread = torch.matrix_power(degree[:, None] * (roads + torch.eye(len(roads))) * degree, 3)  # <<
        return spread @ (x @ self.weight) + self.bias


class Forecast(nn.Module):
    def __init__(self, hidden=24):
        super().__init__()
        self.first, self.second = GraphLayer(STEPS_BACK, hidden), GraphLayer(hidden, hidden)
        self.out = nn.Linear(hidden, 1)

    def forward(self, x, roads):
        h = F.relu(self.first(x, roads))
        h = F.relu(self.second(h, roads))
        return self.out(h).squeeze(-1)


hours = torch.arange(400.0)
speed = 50 + 15 * torch.sin(hours[:, None] / 24 * 6.28 + places[:, 0] * 3) + torch.randn(400, SENSORS)
speed = (speed - speed.mean()) / speed.std()

model = Forecast()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
starts = torch.arange(0, 384, 8)
for epoch in range(args.epochs):
    total = 0.0
    for start in starts[torch.randperm(len(starts))].tolist():
        window = speed[start : start + STEPS_BACK].t()
        loss = F.mse_loss(model(window, near), speed[start + STEPS_BACK])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(f"epoch {epoch}: mse {total / len(starts):.4f}")
