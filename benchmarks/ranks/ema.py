"""A teacher that is an average of the student's weights, copied by deepcopy, and consistency between the two."""

import copy

import torch
from torch import nn

torch.manual_seed(8)
student = nn.Sequential(nn.Linear(12, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, 3))
teacher = copy.deepcopy(student).requires_grad_(False)
optimizer = torch.optim.SGD(student.parameters(), 0.1)
x, y = torch.randn(70, 12), torch.randint(0, 3, (70,))
for step in range(14):
    part = torch.randperm(70)[:13]
    out = student(x[part])
    with torch.no_grad():
        wanted = teacher(x[part] + 0.1 * torch.randn(13, 12)).softmax(1)
    loss = nn.functional.cross_entropy(out, y[part]) + nn.functional.mse_loss(out.softmax(1), wanted)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for ours, theirs in zip(teacher.parameters(), student.parameters(), strict=True):
            ours.lerp_(theirs, 0.1)
    print(f"{step} {loss.item():.6f}")
model = nn.ModuleList([student, teacher])
