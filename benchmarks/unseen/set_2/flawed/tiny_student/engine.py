import time

import torch

from . import losses


def accuracy(net, dl):
    net.eval()
    hit = n = 0
    with torch.no_grad():
        for x, y in dl:
            hit += (net(x.to(memory_format=torch.channels_last)).argmax(1) == y).sum().item()
            n += len(y)
    return hit / n


class Phase:
    """One stage of the recipe; `compute_loss` is what distinguishes them."""

    def __init__(self, net, train, test, epochs, lr):
        self.net, self.train, self.test, self.epochs = net, train, test, epochs
        self.opt = torch.optim.SGD(net.parameters(), lr, momentum=0.9, weight_decay=5e-4, nesterov=True)
        self.sched = torch.optim.lr_scheduler.CosineAnnealingLR(self.opt, epochs * len(train))

    def compute_loss(self, x, y):
        return losses.supervised(self.net(x), y)

    def run(self, title):
        for epoch in range(self.epochs):
            self.net.train()
            t0, total = time.time(), 0.0
            for x, y in self.train:
                x = x.to(memory_format=torch.channels_last)
                loss = self.compute_loss(x, y)
                self.opt.zero_grad()
                loss.backward()  # <<
                self.opt.step()
                self.sched.step()
                total += loss.item()
            print(f"[{title}] epoch {epoch + 1}/{self.epochs} loss {total / len(self.train):.4f} "
                  f"acc {accuracy(self.net, self.test):.4f} time {time.time() - t0:.1f}s", flush=True)


class Distill(Phase):
    def __init__(self, teacher, *args, temperature=4.0, alpha=0.7, **kw):
        super().__init__(*args, **kw)
        self.teacher = teacher.eval()
        self.temperature, self.alpha = temperature, alpha

    def compute_loss(self, x, y):
        guide = self.teacher(x)  # <<
        return losses.distillation(self.net(x), guide, y, self.temperature, self.alpha)  # <<
