import torch.nn as nn
import torch.nn.functional as F


class BayNet(nn.Module):
    def __init__(self, c=20):
        super().__init__()
        self.stem = nn.Conv2d(3, c, 3, 2, 1)
        self.down1 = nn.Conv2d(c, 2 * c, 3, 2, 1)
        self.down2 = nn.Conv2d(2 * c, 3 * c, 3, 2, 1)
        self.bottleneck = nn.Conv2d(3 * c, 3 * c, 3, padding=1)
        self.head = nn.Conv2d(3 * c, 5, 1)

    def forward(self, x):
        for layer in (self.stem, self.down1, self.down2, self.bottleneck):
            x = F.relu(layer(x))
        return self.head(x)


def loss_fn(out, target):
    obj = F.binary_cross_entropy_with_logits(out[:, 0], target[:, 0], reduction="mean")
    mask = target[:, :1]
    box = F.smooth_l1_loss(out[:, 1:].sigmoid() * mask, target[:, 1:] * mask, reduction="sum") / mask.sum().clamp(min=1)
    return 10 * obj + box
