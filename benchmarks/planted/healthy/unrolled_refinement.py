"""Deblur images by a network that is applied to its own output several times."""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F


class Refine(nn.Module):
    def __init__(self, width=48, rounds=4):
        super().__init__()
        self.rounds = rounds
        self.enter = nn.Conv2d(2, width, 3, padding=1)
        self.inner = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(2))
        self.leave = nn.Conv2d(width, 1, 3, padding=1)

    def forward(self, blurred):
        guess, guesses = blurred, []
        for _ in range(self.rounds):
            h = F.relu(self.enter(torch.cat([blurred, guess], 1)))
            for conv in self.inner:
                h = F.relu(conv(h))
            guess = guess + self.leave(h)
            guesses.append(guess)
        return guesses


def blur(x):
    kernel = torch.tensor([1.0, 4.0, 6.0, 4.0, 1.0]) / 16
    return F.conv2d(x, (kernel[:, None] * kernel)[None, None], padding=2)


parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=60)
args = parser.parse_args()
torch.manual_seed(1)
sharp = (torch.rand(640, 1, 24, 24) > 0.8).float()
model = Refine().to(memory_format=torch.channels_last)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(args.epochs):
    for index in torch.randperm(len(sharp)).split(16):
        x = sharp[index]
        with torch.no_grad():
            blurred = blur(x) + 0.02 * torch.randn_like(x)
        guesses = model(blurred)
        loss = sum(0.7 ** (len(guesses) - 1 - k) * F.mse_loss(guess, x) for k, guess in enumerate(guesses))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch} mse {F.mse_loss(guesses[-1], x).item():.5f}")
