"""Mean teacher: consistency between a student and its moving average."""
import argparse
import copy

import torch
from torch import nn


class MeanTeacher:
    def __init__(self, student, decay=0.99):
        self.student = student
        self.teacher = copy.deepcopy(student).requires_grad_(False)
        self.decay = decay

    @torch.no_grad()
    def follow(self):
        torch._foreach_lerp_(list(self.teacher.parameters()), list(self.student.parameters()), 1 - self.decay)

    def loss(self, x, y):
        logits = self.student(x + 0.1 * torch.randn_like(x))
        with torch.no_grad():
            soft = self.teacher(x).softmax(1)
        return nn.functional.cross_entropy(logits, y) + nn.functional.mse_loss(logits.softmax(1), soft)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=200)
    args = parser.parse_args()
    torch.manual_seed(0)
    y = torch.randint(0, 6, (1536,))
    x = torch.randn(6, 1, 128)[y] + torch.randn(1536, 1, 128)
    student = nn.Sequential(
        nn.Conv1d(1, 48, 7, padding=3), nn.ReLU(), nn.Conv1d(48, 48, 7, padding=3), nn.ReLU(), nn.MaxPool1d(4),
        nn.Conv1d(48, 64, 5, padding=2), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(64, 6),
    )
    pair = MeanTeacher(student)
    optimizer = torch.optim.SGD(student.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(args.epochs):
        for index in torch.randperm(len(x)).split(64):
            loss = pair.loss(x[index], y[index])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            pair.follow()
        print(f"epoch {epoch} loss {loss.item():.4f}")


main()
