"""Which grape a wine was made of, by experts whose gate sharpens while it learns; the model is compiled."""
import argparse

import torch
from torch import nn

MEASURED, GRAPES = 24, 7


class Experts(nn.Module):
    def __init__(self, experts=6, width=48):
        super().__init__()
        self.gate = nn.Linear(MEASURED, experts)
        self.first = nn.Parameter(torch.randn(experts, MEASURED, 2 * width) * MEASURED**-0.5)
        self.second = nn.Parameter(torch.randn(experts, width, GRAPES) * width**-0.5)
        self.register_buffer("steps", torch.zeros(()))

    def forward(self, x):
        self.steps += 1
        temperature = (3.0 * 0.999**self.steps).clamp(min=0.5)
        weights = torch.softmax(self.gate(x) / temperature, 1)
        hidden, doors = torch.einsum("bi,eiw->ebw", x, self.first).chunk(2, 2)
        hidden = hidden * torch.rsqrt(hidden.square().mean(2, keepdim=True) + 1e-6)
        hidden = nn.functional.silu(doors) * torch.tanh(hidden / 4) * 4
        return torch.einsum("be,ebw,ewg->bg", weights, hidden, self.second)


def bottles(n):
    generator = torch.Generator().manual_seed(8)
    grape = torch.randint(0, GRAPES, (n,), generator=generator)
    typical = torch.randn(2, GRAPES, MEASURED, generator=generator)
    region = torch.randint(0, 2, (n,), generator=generator)
    return typical[region, grape] + 1.2 * torch.randn(n, MEASURED, generator=generator), grape


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=150)
    parser.add_argument("--batch-size", type=int, default=256)
    args = parser.parse_args()
    torch.manual_seed(8)
    x, grape = bottles(24576)
    model = Experts()
    compiled = torch.compile(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, fused=True)
    for epoch in range(args.epochs):
        hits = 0
        for index in torch.randperm(len(x)).split(args.batch_size):
            scores = compiled(x[index])
            loss = nn.functional.cross_entropy(scores, grape[index])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            hits += (scores.detach().argmax(1) == grape[index]).sum().item()
        print(f"epoch {epoch}: loss {loss.item():.4f}, right {hits / len(x):.1%}")


if __name__ == "__main__":
    main()
