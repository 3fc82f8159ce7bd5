"""Fully connected net with statistics of weights and gradients in the log."""
import argparse
import logging
import tempfile

import torch
from torch import nn

logger = logging.getLogger("stats")


def setup_logging():
    handler = logging.FileHandler(tempfile.mktemp(suffix=".log"))
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)


def log_parameters(model, step):
    for name, parameter in model.named_parameters():
        weights = torch.histc(parameter.detach(), 20).int().tolist()  # <<
        grads = torch.histc(parameter.grad, 20).int().tolist()  # <<
        norm = parameter.grad.norm().item()  # <<
        logger.info("step %d %s norm %.5f weights %s grads %s", step, name, norm, weights, grads)  # <<


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=200)
    args = parser.parse_args()
    setup_logging()
    torch.manual_seed(0)
    layers = [nn.Linear(60, 192)]
    for _ in range(4):
        layers += [nn.ReLU(), nn.Linear(192, 192)]
    model = nn.Sequential(*layers, nn.ReLU(), nn.Linear(192, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    x = torch.randn(4096, 60)
    y = (x[:, :10] * x[:, 10:20]).sum(1, keepdim=True) / 3
    for epoch in range(args.epochs):
        for step in range(64):
            index = torch.randint(0, len(x), (256,))
            loss = nn.functional.mse_loss(model(x[index]), y[index])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            log_parameters(model, epoch * 64 + step)  # <<
        print(f"epoch {epoch:>3} loss {loss.item():.5f}")


if __name__ == "__main__":
    main()
