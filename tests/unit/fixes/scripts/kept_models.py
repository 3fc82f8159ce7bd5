"""Every way of keeping a parametrized model: what was kept is what it was then, and answers as that."""

import copy
import pickle

import torch
from torch import nn
from torch.nn.utils import parametrizations
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(4)


def build():
    first = parametrizations.weight_norm(nn.Conv2d(2, 4, 3, bias=False))
    last = parametrizations.spectral_norm(nn.Linear(64, 5))
    return nn.Sequential(first, nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), last)


def by_dictionary(model, copied):
    made = type(model).__new__(type(model))
    made.__dict__ = copied(model.__dict__)
    return made


def with_weights(model):
    made = build()
    made.load_state_dict(model.state_dict())
    return made


WAYS = {
    "deep": copy.deepcopy,
    "shallow": copy.copy,
    "its dictionary": lambda model: by_dictionary(model, dict),
    "a copy of its dictionary": lambda model: by_dictionary(model, copy.deepcopy),
    "in a list": lambda model: copy.deepcopy([{"model": model}])[0]["model"],
    "its weights": with_weights,
}

device = torch.device("cpu")
probe = torch.randn(3, 2, 6, 6)
loader = DataLoader(TensorDataset(torch.randn(32, 2, 6, 6), torch.randint(0, 5, (32,))), batch_size=8, shuffle=True)
student, judge = build(), nn.Linear(5, 5)
teacher, kept = copy.deepcopy(student), {}
optimizer = torch.optim.Adam([*student.parameters(), *judge.parameters()], 1e-3)
for epoch in range(4):
    for images, kinds in loader:
        images, kinds = images.to(device), kinds.to(device)
        with torch.no_grad():
            goal = teacher(images)
        scores = student(images)
        loss = nn.functional.cross_entropy(judge(scores), kinds) + 0.5 * nn.functional.mse_loss(scores, goal)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for old, new in zip(teacher.parameters(), student.parameters(), strict=True):
                old.lerp_(new, 0.2)
        print(f"loss {loss.item()!r}")
    if epoch == 1:
        kept = {name: keep(student) for name, keep in WAYS.items()}
        judge = pickle.loads(pickle.dumps(judge))
        optimizer = torch.optim.Adam([*student.parameters(), *judge.parameters()], 1e-3)

with torch.no_grad():
    for name, model in [("now", student), ("teacher", teacher), *kept.items()]:
        print(f"{name}: {model.eval()(probe).double().sum().item()!r}")
torch.save({name: model.state_dict() for name, model in kept.items()}, "kept.pt")
