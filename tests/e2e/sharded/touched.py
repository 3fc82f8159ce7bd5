"""A script that does to its parameters and gradients, between the calls of its model, what scripts do."""

import copy
import io

import torch
from torch import nn

torch.manual_seed(2)
model = nn.Sequential(nn.Linear(40, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 32))
before = copy.deepcopy(model)
view = model[2].weight.data[3]
optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
average = copy.deepcopy(model)
best = model.state_dict()
array = model[4].weight.detach().numpy()
print(type(model[0].weight).__name__, sum(one.numel() for one in model.parameters()), str(model[2].weight)[:60])
for step in range(50):
    x = torch.randn(16, 40)
    for _ in range(2):
        loss = model(x).pow(2).mean() + 1e-3 * model[0].weight.pow(2).sum() + 1e-3 * model[4].weight.abs().mean()
        loss.backward()
    print(f"{step} {loss.item():.6f} {view.sum().item():.5f} {array.sum():.5f} {best['2.weight'].norm():.5f}")
    if step % 5 == 0 and step < 40:
        print(" ".join(f"{one.grad.norm():.5f}" for one in model.parameters()))
    if step % 7 == 0 and step < 40:
        for one in model.parameters():
            one.grad.mul_(0.5).clamp_(-1, 1)
        nn.utils.clip_grad_value_(model.parameters(), 0.01)
    optimizer.step()
    with torch.no_grad():
        for one, other in zip(average.parameters(), model.parameters(), strict=True):
            one.mul_(0.9).add_(other, alpha=0.1)
        if step % 10 == 3:
            model[0].weight += 0.01 * torch.randn_like(model[0].weight)
            model[2].weight.data.clamp_(-0.2, 0.2)
            nn.init.xavier_uniform_(model[4].weight)
        if step == 20:
            model[2].weight.data = model[2].weight.data.clone()
        if step == 30:
            view.zero_()
    if step % 3:
        optimizer.zero_grad(set_to_none=step % 2 == 0)
    else:
        model.zero_grad()
    print(f"  {average(x).sum().item():.5f} {before(x).sum().item():.5f} {model[2].weight.norm().item():.5f}")
    if step == 40:
        for one in model[0].parameters():
            one.requires_grad_(False)
    if step == 43:
        model[0].requires_grad_(True)
        optimizer.add_param_group({"params": [nn.Parameter(torch.ones(2000))], "lr": 0.1})
    if step == 37:
        file = io.BytesIO()
        torch.save(model, file)
        file.seek(0)
        loaded = torch.load(file, weights_only=False)
        print(type(loaded[0].weight).__name__, f"{loaded(x).sum().item():.5f}")
        model.load_state_dict({name: 0.9 * one for name, one in model.state_dict().items()})
