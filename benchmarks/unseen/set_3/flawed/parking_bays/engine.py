import torch
from torch.utils.data import DataLoader, random_split

from .net import BayNet, loss_fn


class Engine:
    def __init__(self, data, epochs, batch):
        torch.manual_seed(6)
        train, val = random_split(data, [len(data) - 240, 240])
        self.train_loader = DataLoader(train, batch, shuffle=True, drop_last=True)
        self.val_loader = DataLoader(val, batch)
        self.net = BayNet().to(memory_format=torch.channels_last)
        self.opt = torch.optim.Adam(self.net.parameters(), lr=1.5e-3)
        self.hooks, self.epochs, self.step, self.epoch = [], epochs, 0, 0

    def call(self, name):
        for hook in self.hooks:
            getattr(hook, name)(self)  # <<

    def run(self):
        for self.epoch in range(self.epochs):
            self.call("on_epoch_start")
            self.net.train()
            for images, target in self.train_loader:
                out = self.net(images.contiguous(memory_format=torch.channels_last))
                loss = loss_fn(out, target)
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
                self.images, self.output, self.loss = images, out.detach(), loss.item()
                self.step += 1
                self.call("on_step_end")  # <<
            self.call("on_epoch_end")
            print(f"epoch {self.epoch} val {self.validate():.4f}")

    @torch.no_grad()
    def validate(self):
        self.net.eval()
        return sum(loss_fn(self.net(x), t).item() for x, t in self.val_loader) / len(self.val_loader)
