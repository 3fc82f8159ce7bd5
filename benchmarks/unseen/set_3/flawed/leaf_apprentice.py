"""Distil a wide leaf-texture classifier into a slim one (Hinton-style, T=4)."""
import time

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

SPECIES = 12
TEMPERATURE = 4.0
ALPHA = 0.7


def textures(n, seed):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, SPECIES, (n,), generator=g)
    yy, xx = torch.meshgrid(torch.linspace(-1, 1, 32), torch.linspace(-1, 1, 32), indexing="ij")
    freq = 2.0 + y.float() % 4 * 2.0
    angle = (y // 4).float() * 0.9 + 0.15 * torch.randn(n, generator=g)
    phase = torch.rand(n, generator=g) * 6.28
    u = angle.cos()[:, None, None] * xx + angle.sin()[:, None, None] * yy
    img = torch.sin(freq[:, None, None] * 3.14 * u + phase[:, None, None])
    tint = torch.rand(n, 3, 1, 1, generator=g)
    x = img[:, None] * tint + 0.5 * torch.randn(n, 3, 32, 32, generator=g)
    return x, y


def block(i, o, stride=1):
    return nn.Sequential(nn.Conv2d(i, o, 3, stride, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True))


def convnet(widths):
    layers, last = [], 3
    for w in widths:
        layers += [block(last, w), block(w, w, 2)]
        last = w
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(last, SPECIES))


def fit_teacher(x, y, steps=25):
    net = convnet([32, 64, 96]).to(memory_format=torch.channels_last)
    opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    for s in range(steps):
        pick = torch.randint(0, len(x), (64,))
        loss = F.cross_entropy(net(x[pick].contiguous(memory_format=torch.channels_last)), y[pick])
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"teacher ready, last loss {loss.item():.3f}", flush=True)
    return net.eval().requires_grad_(False)


def distil_loss(student_logits, teacher_logits, target):
    soft = F.kl_div(
        F.log_softmax(student_logits / TEMPERATURE, 1),
        F.softmax(teacher_logits / TEMPERATURE, 1),
        reduction="batchmean",
    )
    return ALPHA * TEMPERATURE ** 2 * soft + (1 - ALPHA) * F.cross_entropy(student_logits, target)


def main():
    torch.manual_seed(11)
    x, y = textures(3200, 0)
    xv, yv = textures(400, 1)
    teacher = fit_teacher(x, y)
    student = convnet([8, 16, 24]).to(memory_format=torch.channels_last)
    loader = DataLoader(TensorDataset(x, y), batch_size=64, shuffle=True, drop_last=True)
    opt = torch.optim.Adam(student.parameters(), lr=2e-3)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 8)
    for epoch in range(8):
        student.train()
        t0, tot = time.time(), 0.0
        for xb, yb in loader:
            xb = xb.contiguous(memory_format=torch.channels_last)
            with torch.no_grad():
                t_logits = teacher(xb)  # <<
            loss = distil_loss(student(xb), t_logits, yb)
            opt.zero_grad()
            loss.backward()
            opt.step()
            tot += loss.item()
        sched.step()
        student.eval()
        with torch.no_grad():
            acc = (student(xv).argmax(1) == yv).float().mean().item()
        print(f"epoch {epoch + 1}/8 loss {tot / len(loader):.3f} val acc {acc:.3f} ({time.time() - t0:.1f}s)", flush=True)


if __name__ == "__main__":
    main()
