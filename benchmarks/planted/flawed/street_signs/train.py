import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader

from signs import Signs


class Lamb(torch.optim.Optimizer):
    """Adam whose steps are scaled, for each tensor, by how large the tensor is."""

    def __init__(self, params, lr=0.01, betas=(0.9, 0.99), eps=1e-6, decay=1e-4):
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "decay": decay})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:  # <<2
                state = self.state[p]
                if not state:
                    state["mean"], state["square"] = torch.zeros_like(p), torch.zeros_like(p)
                mean, square = state["mean"], state["square"]
                mean.mul_(beta1).add_(p.grad, alpha=1 - beta1)  # <<2
                square.mul_(beta2).addcmul_(p.grad, p.grad, value=1 - beta2)  # <<2
                update = mean / (square.sqrt() + group["eps"])  # <<2
                update = update + group["decay"] * p  # <<2
                trust = (p.norm() / update.norm().clamp_min(1e-8)).clamp(0.01, 10.0)  # <<2
                p.sub_(update * (group["lr"] * trust))  # <<2


class Residual(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(c, c, 3, padding=1), nn.GroupNorm(4, c), nn.ReLU(), nn.Conv2d(c, c, 1), nn.GroupNorm(4, c),
        )

    def forward(self, x):
        return torch.relu(x + self.body(x))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=200)
    args = parser.parse_args()
    torch.manual_seed(13)
    loader = DataLoader(Signs(320), batch_size=16, shuffle=True, num_workers=2)  # <<
    net = nn.Sequential(
        nn.Conv2d(3, 16, 4, 4), *[Residual(16) for _ in range(8)],
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10),
    )
    optimizer = Lamb(net.parameters())
    for epoch in range(args.epochs):
        for x, y in loader:  # <<
            loss = nn.functional.cross_entropy(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()  # <<2
        print(f"epoch {epoch} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
