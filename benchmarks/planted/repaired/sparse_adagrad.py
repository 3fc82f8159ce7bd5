import argparse

import torch
from torch import nn


class RowAdagrad(torch.optim.Optimizer):
    """Adagrad with one accumulator per row, touching only rows that got a gradient."""

    def __init__(self, params, lr=0.05, eps=1e-8):
        super().__init__(params, {"lr": lr, "eps": eps})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["sum"] = torch.zeros(len(p))
                touched = p.grad.abs().amax(1).nonzero().squeeze(1)
                g = p.grad[touched]
                state["sum"][touched] += g.pow(2).mean(1)
                p[touched] -= group["lr"] * g / (state["sum"][touched].sqrt() + group["eps"])[:, None]


class SkipGram(nn.Module):
    def __init__(self, words, dim):
        super().__init__()
        self.centre = nn.Embedding(words, dim)
        self.context = nn.Embedding(words, dim)
        nn.init.normal_(self.centre.weight, std=0.1)
        nn.init.normal_(self.context.weight, std=0.1)

    def forward(self, centre, context, noise):
        c = self.centre(centre)
        positive = (c * self.context(context)).sum(1)
        negative = torch.einsum("bd,bkd->bk", c, self.context(noise))
        return -(nn.functional.logsigmoid(positive).mean() + nn.functional.logsigmoid(-negative).sum(1).mean())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=200)
    args = parser.parse_args()
    torch.manual_seed(0)
    words = 1500
    text = (torch.rand(3000).pow(3) * words).long()
    model = SkipGram(words, 384)
    optimizer = RowAdagrad(model.parameters())
    for epoch in range(args.epochs):
        losses = []
        for start in range(0, len(text) - 130, 128):
            centre, context = text[start : start + 128], text[start + 1 : start + 129]
            noise = torch.randint(0, words, (128, 5)) % 200
            loss = model(centre, context, noise)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        print(f"epoch {epoch} loss {sum(losses) / len(losses):.4f}")


main()
