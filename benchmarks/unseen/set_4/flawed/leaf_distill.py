"""Knowledge distillation: big leaf classifier -> something that fits on the field scanner.

Stage 1 fits the teacher for a couple of epochs, stage 2 distils (Hinton et al., T=4).
"""
import torch
import torch.nn as nn
import torch.nn.functional as F

T = 4.0
ALPHA = 0.7
BS = 40
N_CLASSES = 12


def fake_leaves(n, gen):
    y = torch.randint(0, N_CLASSES, (n,), generator=gen)
    g = torch.linspace(-1, 1, 32)
    yy, xx = torch.meshgrid(g, g, indexing="ij")
    r = (xx ** 2 + yy ** 2).sqrt()
    phi = torch.atan2(yy, xx)
    lobes = (y % 4 + 2).float()[:, None, None]
    width = (0.35 + 0.1 * (y // 4).float())[:, None, None]
    outline = (r < width + 0.2 * torch.cos(lobes * phi + torch.rand(n, 1, 1, generator=gen))).float()
    tint = torch.rand(n, 3, 1, 1, generator=gen) * 0.5 + 0.5
    x = outline[:, None] * tint + 0.35 * torch.randn(n, 3, 32, 32, generator=gen)
    return x, y


def conv_bn(i, o, stride=1):
    return nn.Sequential(nn.Conv2d(i, o, 3, stride, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True))


class Teacher(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Sequential(conv_bn(3, 32), conv_bn(32, 32), conv_bn(32, 64, 2), conv_bn(64, 64), conv_bn(64, 96, 2),
                               nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.fc = nn.Linear(96, N_CLASSES)

    def forward(self, x):
        return self.fc(self.f(x))


class Student(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Sequential(conv_bn(3, 8, 2), conv_bn(8, 16, 2), conv_bn(16, 24, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.fc = nn.Linear(24, N_CLASSES)

    def forward(self, x):
        return self.fc(self.f(x))


def kd_loss(student_logits, teacher_logits, y):
    soft = F.kl_div(F.log_softmax(student_logits / T, 1), F.softmax(teacher_logits / T, 1), reduction="batchmean") * T * T
    return ALPHA * soft + (1 - ALPHA) * F.cross_entropy(student_logits, y)


def fit_teacher(teacher, x, y, epochs=1):
    opt = torch.optim.Adam(teacher.parameters(), lr=2e-3)
    for e in range(epochs):
        for idx in torch.randperm(len(x)).split(BS):
            loss = F.cross_entropy(teacher(x[idx]), y[idx])
            opt.zero_grad()
            loss.backward()
            opt.step()
        print(f"teacher epoch {e} last loss {loss.item():.3f}")


def distil(student, teacher, x, y, x_val, y_val, epochs):
    opt = torch.optim.Adam(student.parameters(), lr=3e-3)
    teacher.eval()
    for p in teacher.parameters():
        p.requires_grad_(False)

    for e in range(epochs):
        student.train()
        total = 0.0
        for idx in torch.randperm(len(x)).split(BS):
            xb, yb = x[idx], y[idx]
            with torch.no_grad():
                t_logits = teacher(xb)  # <<
            loss = kd_loss(student(xb), t_logits, yb)
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item() * len(idx)
        student.eval()
        with torch.no_grad():
            acc = (student(x_val).argmax(1) == y_val).float().mean().item()
        print(f"distil epoch {e:2d}  loss {total / len(x):.4f}  val acc {acc:.3f}")


def main():
    torch.manual_seed(17)
    gen = torch.Generator().manual_seed(17)
    x, y = fake_leaves(1000, gen)
    x_val, y_val = fake_leaves(200, gen)
    teacher, student = Teacher(), Student()
    fit_teacher(teacher, x, y)
    distil(student, teacher, x, y, x_val, y_val, epochs=20)


if __name__ == "__main__":
    main()
