"""Each of torch's optimizers, one of the script's own, and two that train one module."""

import torch
from torch import nn

torch.manual_seed(4)
OWN = (
    "Adadelta",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "ASGD",
    "NAdam",
    "RAdam",
    "RMSprop",
    "Rprop",
    "SGD",
    "Adafactor",
)


class Signs(torch.optim.Optimizer):
    def __init__(self, params):
        super().__init__(params, {"lr": 1e-3})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for one in group["params"]:
                mean = self.state[one].setdefault("mean", torch.zeros_like(one))
                mean.lerp_(one.grad, 0.1)
                one.add_(mean.sign(), alpha=-group["lr"])


def train(name):
    model = nn.Sequential(nn.Linear(32, 48), nn.Tanh(), nn.Linear(48, 32))
    if name == "two":
        made = [torch.optim.Adam(model.parameters(), 1e-3), torch.optim.SGD(model[0].parameters(), 1e-2)]
    else:
        made = [Signs(model.parameters()) if name == "own" else getattr(torch.optim, name)(model.parameters(), 1e-3)]
    for step in range(8):
        x = torch.randn(8, 32)

        def closure(x=x, model=model, made=made):
            for one in made:
                one.zero_grad()
            loss = nn.functional.mse_loss(model(x), x)
            loss.backward()
            return loss

        if name == "AdamW":
            loss = made[0].step(closure)
        else:
            loss = closure()
            for one in made:
                one.step()
        print(f"{name} {step} {loss.item():.6f}")
        if step == 4:
            for one in made:
                one.load_state_dict(one.state_dict())
    print(*(f"{one.norm().item():.6f}" for one in model.parameters()))


for name in (*OWN, "own", "two"):
    train(name)
