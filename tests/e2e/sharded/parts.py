"""Layers that use parameters in ways of their own: recurrent, normed, convolutional, computed again, by parts."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

torch.manual_seed(5)


class Own(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        ctx.weight = weight
        return x @ weight.t()

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        return grad @ ctx.weight, grad.t() @ x + 0 * weight


class Parts(nn.Module):
    def __init__(self):
        super().__init__()
        self.turned = nn.LSTM(16, 24, num_layers=2, batch_first=True)
        self.normed = nn.utils.parametrizations.weight_norm(nn.Linear(24, 48))
        self.flat = nn.Conv1d(48, 32, 3, padding=1)
        self.blocks = nn.ModuleList(nn.TransformerEncoderLayer(32, 4, 64, 0.0, batch_first=True) for _ in range(3))
        self.own = nn.Parameter(torch.randn(40, 32) * 0.1)
        self.both = nn.Bilinear(40, 8, 16)
        self.mixed = nn.Linear(16, 80)

    def forward(self, x):
        y = self.normed(self.turned(x)[0]).relu()
        y = self.flat(y.transpose(1, 2)).transpose(1, 2)
        for number, block in enumerate(self.blocks):
            y = checkpoint(block, y, use_reentrant=number == 1) if self.training and number else block(y)
        y = Own.apply(y.mean(1), self.own)
        y = self.both(y, x[:, 0, :8])
        return nn.functional.linear(y, self.mixed.weight, self.mixed.bias)


model = Parts()
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
for step in range(50):
    x = torch.randn(8, 6, 16)
    loss = model(x).sub(x.flatten(1)[:, :80]).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"{step} {loss.item():.6f}")
    if step % 10 == 9:
        model.eval()
        with torch.inference_mode():
            print(f"  {model(x).sum().item():.5f}")
        model.train()
