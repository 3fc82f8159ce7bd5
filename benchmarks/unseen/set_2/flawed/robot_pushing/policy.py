import torch
from torch import nn


class SpatialSoftmax(nn.Module):
    """Expected image coordinates of each feature map."""

    def forward(self, x):
        b, c, h, w = x.shape
        p = x.reshape(b, c, h * w).softmax(-1).view(b, c, h, w)
        ys = torch.linspace(-1, 1, h)
        xs = torch.linspace(-1, 1, w)
        return torch.cat([(p.sum(3) * ys).sum(-1), (p.sum(2) * xs).sum(-1)], dim=1)


class PushPolicy(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(6, 24, 5, stride=2), nn.ReLU(),
            nn.Conv2d(24, 32, 3), nn.ReLU(),
            nn.Conv2d(32, 32, 3), nn.ReLU(),
            SpatialSoftmax())
        self.head = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 2), nn.Tanh())

    def forward(self, obs):
        return self.head(self.features(obs))
