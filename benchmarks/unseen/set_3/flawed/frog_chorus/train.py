import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader

from .audio import SPECIES, make_clips
from .data import PondClips
from .model import chorus_net


class Trainer:
    def __init__(self, args):
        torch.manual_seed(args.seed)
        clips, labels = make_clips(args.clips, 1.0, args.seed)
        cut = int(0.9 * args.clips)
        self.train_loader = DataLoader(PondClips(clips[:cut], labels[:cut], True), args.batch, shuffle=True)
        self.val_loader = DataLoader(PondClips(clips[cut:], labels[cut:], False), args.batch)
        self.model = chorus_net(len(SPECIES)).to(memory_format=torch.channels_last)
        self.opt = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=5e-4)
        self.sched = torch.optim.lr_scheduler.CosineAnnealingLR(self.opt, args.epochs)
        self.loss = nn.CrossEntropyLoss()
        self.args = args

    def fit(self):
        for epoch in range(self.args.epochs):
            start = time.perf_counter()
            train_loss = self.one_epoch()
            acc = self.validate()
            self.sched.step()
            print(f"epoch {epoch + 1}: loss {train_loss:.3f}, val acc {acc:.3f}, {time.perf_counter() - start:.1f} s")

    def one_epoch(self):
        self.model.train()
        total = 0.0
        for i, (x, y) in enumerate(self.train_loader):
            x = x.contiguous(memory_format=torch.channels_last)
            loss = self.loss(self.model(x), y)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            total += loss.item()
            if i % 15 == 0:
                print(f"   batch {i}/{len(self.train_loader)} loss {loss.item():.3f}")
        return total / len(self.train_loader)

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        good = sum((self.model(x).argmax(1) == y).sum().item() for x, y in self.val_loader)
        return good / len(self.val_loader.dataset)


def main():
    p = argparse.ArgumentParser(prog="frog_chorus")
    p.add_argument("--clips", type=int, default=2000)
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--seed", type=int, default=5)
    Trainer(p.parse_args()).fit()
