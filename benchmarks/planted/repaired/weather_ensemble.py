"""An ensemble of small regressors, written with plain functions and tensors."""
import argparse
import math

import torch
import torch.nn.functional as F

MEMBERS, INPUTS, HIDDEN = 24, 20, 64


def init(g):
    def draw(*shape):
        return (torch.randn(MEMBERS, *shape, generator=g) / math.sqrt(shape[0])).requires_grad_()

    return {"w1": draw(INPUTS, HIDDEN), "w2": draw(HIDDEN, HIDDEN), "w3": draw(HIDDEN, 1)}


def predict(params, x):
    h = F.silu(x @ params["w1"])
    h = F.silu(h @ params["w2"])
    return (h @ params["w3"]).squeeze(2)


def loss_fn(params, x, y, keep):
    return ((predict(params, x) - y).square() * keep).mean()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--lr", type=float, default=0.2)
    args = parser.parse_args()
    g = torch.Generator().manual_seed(10)
    x = torch.randn(4800, INPUTS, generator=g)
    y = torch.sin(x[:, 0]) + 0.3 * x[:, 1] * x[:, 2]
    params = init(g)
    for epoch in range(args.epochs):
        order = torch.randperm(len(x), generator=g)
        for index in order.split(96):
            keep = (torch.rand(MEMBERS, len(index), generator=g) < 0.8).float()
            loss = loss_fn(params, x[index], y[index], keep)
            grads = torch.autograd.grad(loss, list(params.values()))
            with torch.no_grad():
                for p, grad in zip(params.values(), grads):
                    p -= args.lr * grad
        with torch.no_grad():
            spread = predict(params, x[:256]).std(0).mean()
        print(f"epoch {epoch} loss {loss.item():.4f} spread {spread.item():.4f}")


if __name__ == "__main__":
    main()
