"""Behaviour cloning of a 7-joint arm controller, trained with a Shampoo-type preconditioned SGD."""
import argparse
import time

import torch
from torch import nn
from torch.optim import Optimizer


def matrix_power(mat, power, eps=1e-4):
    eye = torch.eye(mat.shape[0])
    values, vectors = torch.linalg.eigh(mat + eps * mat.trace() / mat.shape[0] * eye)  # <<
    return (vectors * values.clamp_min(1e-12).pow(power)) @ vectors.T  # <<


class KroneckerOptimizer(Optimizer):
    """Common part: momentum, grafting of the update's length to the gradient's."""

    def __init__(self, params, lr, momentum=0.9, beta=0.95):
        super().__init__(params, dict(lr=lr, momentum=momentum, beta=beta))

    def direction(self, grad, state, beta):
        raise NotImplementedError

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                state["step"] = state.get("step", 0) + 1
                update = p.grad
                if p.ndim == 2:
                    update = self.direction(p.grad, state, group["beta"])  # <<
                    update = update * (p.grad.norm() / update.norm().clamp_min(1e-12))
                if "velocity" not in state:
                    state["velocity"] = torch.zeros_like(p)
                state["velocity"].mul_(group["momentum"]).add_(update)
                p.add_(state["velocity"], alpha=-group["lr"])


class Shampoo(KroneckerOptimizer):
    def direction(self, grad, state, beta):
        if "left" not in state:
            state["left"] = torch.zeros(grad.shape[0], grad.shape[0])
            state["right"] = torch.zeros(grad.shape[1], grad.shape[1])
        state["left"].mul_(beta).addmm_(grad, grad.T, alpha=1 - beta)
        state["right"].mul_(beta).addmm_(grad.T, grad, alpha=1 - beta)
        state["left_root"] = matrix_power(state["left"], -0.25)  # <<
        state["right_root"] = matrix_power(state["right"], -0.25)  # <<
        return state["left_root"] @ grad @ state["right_root"]


class Policy(nn.Module):
    def __init__(self, obs=34, act=7, width=192, depth=4):
        super().__init__()
        layers = [nn.Linear(obs, width), nn.ELU()]
        for _ in range(depth - 1):
            layers += [nn.Linear(width, width), nn.ELU()]
        self.body = nn.Sequential(*layers)
        self.mean = nn.Linear(width, act)
        self.log_std = nn.Parameter(torch.full((act,), -0.5))

    def nll(self, obs, act):
        mean = self.mean(self.body(obs))
        z = (act - mean) * (-self.log_std).exp()
        return (0.5 * z.square() + self.log_std).sum(-1).mean()


def demonstrations(n):
    """Joint angles, velocities, goal pose, and object features; torque from a PD law with gravity compensation."""
    q = (torch.rand(n, 7) * 2 - 1) * 2.0
    dq = torch.randn(n, 7) * 0.5
    goal = (torch.rand(n, 7) * 2 - 1) * 2.0
    extra = torch.randn(n, 13)
    gravity = torch.cumsum(torch.sin(torch.cumsum(q, 1)), 1) * 0.3
    torque = 3.0 * (goal - q) - 0.8 * dq + gravity
    torque = torque.clamp(-6, 6) / 3 + 0.05 * torch.randn(n, 7)
    return torch.cat([q, dq, goal, extra], 1), torque


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=28)
    ap.add_argument("--batch", type=int, default=1536)
    args = ap.parse_args()
    torch.manual_seed(13)
    obs, act = demonstrations(98304)
    policy = Policy()
    opt = Shampoo(policy.parameters(), lr=0.004)
    for epoch in range(args.epochs):
        clock = time.perf_counter()
        total, count = torch.zeros(()), 0
        for index in torch.randperm(len(obs)).split(args.batch):
            loss = policy.nll(obs[index], act[index])
            opt.zero_grad()
            loss.backward()
            opt.step()  # <<
            total += loss.detach()
            count += 1
        print(f"epoch {epoch:2d}  nll {total.item() / count:.4f}  {time.perf_counter() - clock:.2f}s")


if __name__ == "__main__":
    main()
