"""Mean teacher on mushrooms: 300 labelled photos, the rest unlabelled. The teacher is the EMA of the student
and sees another augmentation of the same photo, the student has to agree with it."""
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F

N_CLASS = 8
LABELLED, UNLABELLED, TEST = 300, 1500, 300
BATCH_L, BATCH_U = 12, 24
STEPS = 480
EMA = 0.99


def photos(n, g):
    y = torch.randint(0, N_CLASS, (n,), generator=g)
    a = torch.linspace(-1, 1, 32)
    yy, xx = torch.meshgrid(a, a, indexing="ij")
    cap_w = (0.4 + 0.06 * y)[:, None, None]
    cap = ((xx / cap_w) ** 2 + ((yy + 0.2) / 0.3) ** 2 < 1).float()
    stem = ((xx.abs() < (0.08 + 0.03 * (y % 3))[:, None, None]) & (yy > 0)).float()
    colour = torch.stack([y / 8, 1 - y / 9, (y * 3 % 8) / 8], 1).float()[:, :, None, None]
    img = 0.7 * cap[:, None] * colour + 0.5 * stem[:, None]
    return img + 0.45 * torch.randn(n, 3, 32, 32, generator=g), y


def augment(x):
    """flip, 3px shift, per photo brightness, noise. One pass over the batch."""
    n = len(x)
    flip = torch.rand(n) < 0.5
    x = torch.where(flip[:, None, None, None], x.flip(3), x)
    theta = torch.zeros(n, 2, 3)
    theta[:, 0, 0] = theta[:, 1, 1] = 1
    theta[:, :, 2] = (torch.rand(n, 2) - 0.5) * 0.2
    grid = F.affine_grid(theta, x.shape, align_corners=False)
    x = F.grid_sample(x, grid, align_corners=False, padding_mode="reflection")
    return x * (0.8 + 0.4 * torch.rand(n, 1, 1, 1)) + 0.1 * torch.randn_like(x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        def block(i, o, s):
            return nn.Sequential(nn.Conv2d(i, o, 3, s, 1, bias=False), nn.BatchNorm2d(o), nn.LeakyReLU(0.1))
        self.f = nn.Sequential(block(3, 16, 1), block(16, 32, 2), block(32, 32, 1), block(32, 48, 2))
        self.drop = nn.Dropout(0.2)
        self.fc = nn.Linear(48, N_CLASS)

    def forward(self, x):
        return self.fc(self.drop(self.f(x).mean((2, 3))))


@torch.no_grad()
def update_teacher(teacher, student, step):
    decay = min(EMA, 1 - 1 / (step + 1))
    torch._foreach_lerp_(list(teacher.parameters()), list(student.parameters()), 1 - decay)
    for bt, bs in zip(teacher.buffers(), student.buffers()):
        bt.copy_(bs)


torch.manual_seed(202)
g = torch.Generator().manual_seed(202)
x_lab, y_lab = photos(LABELLED, g)
x_un, _ = photos(UNLABELLED, g)
x_test, y_test = photos(TEST, g)

student = Net()
teacher = copy.deepcopy(student)
for p in teacher.parameters():
    p.requires_grad_(False)
optimizer = torch.optim.SGD(student.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=5e-4)

sup_sum = con_sum = 0.0
for step in range(STEPS):
    il = torch.randint(LABELLED, (BATCH_L,))
    iu = torch.randint(UNLABELLED, (BATCH_U,))
    x = torch.cat([x_lab[il], x_un[iu]])
    out = student(augment(x))
    with torch.no_grad():
        target = teacher(augment(x)).softmax(1)
    sup = F.cross_entropy(out[:BATCH_L], y_lab[il])
    con = F.mse_loss(out.softmax(1), target)
    loss = sup + 20 * min(1.0, step / 200) * con
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    update_teacher(teacher, student, step)
    sup_sum += sup.item()
    con_sum += con.item()

    if (step + 1) % 60 == 0:
        teacher.eval()
        with torch.no_grad():
            acc = (teacher(x_test).argmax(1) == y_test).float().mean().item()
        teacher.train()
        print(f"step {step + 1}: sup {sup_sum / 60:.4f} con {con_sum / 60:.5f} teacher acc {acc:.3f}")
        sup_sum = con_sum = 0.0
