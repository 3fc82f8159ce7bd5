import time

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader

from .phantoms import KidneyPhantoms
from .unet import DeepUNet

SCALE_WEIGHTS = (1.0, 0.5, 0.25)


def soft_dice(logits, target):
    prob = logits.softmax(1)
    hot = F.one_hot(target, logits.size(1)).permute(0, 4, 1, 2, 3).float()
    inter = (prob * hot).sum((0, 2, 3, 4))
    return 1 - (2 * inter / ((prob + hot).sum((0, 2, 3, 4)) + 1e-5)).mean()


def criterion(logits, target):
    if logits.shape[2:] != target.shape[1:]:
        target = F.interpolate(target.unsqueeze(1).float(), size=logits.shape[2:]).squeeze(1).long()
    return F.cross_entropy(logits, target), soft_dice(logits, target)


class Trainer:
    def __init__(self, epochs=3, batch=2):
        torch.manual_seed(17)
        self.net = DeepUNet()
        self.opt = torch.optim.SGD(self.net.parameters(), lr=0.01, momentum=0.95, nesterov=True)
        self.epochs = epochs
        self.train_loader = DataLoader(KidneyPhantoms(100, seed=1), batch, shuffle=True)
        self.val_loader = DataLoader(KidneyPhantoms(16, seed=2), batch)

    def step(self, volume, label):
        self.opt.zero_grad()
        outputs = self.net(volume)
        total = 0.0
        for weight, out in zip(SCALE_WEIGHTS, outputs):
            for term in criterion(out, label):
                loss = weight * term
                loss.backward(retain_graph=True)  # <<
                total += loss.item()
        torch.nn.utils.clip_grad_norm_(self.net.parameters(), 12)
        self.opt.step()
        return total

    @torch.no_grad()
    def dice(self):
        scores = [1 - soft_dice(self.net(v)[0], y).item() for v, y in self.val_loader]
        return sum(scores) / len(scores)

    def fit(self):
        for epoch in range(self.epochs):
            t0, running = time.time(), 0.0
            for i, (volume, label) in enumerate(self.train_loader, 1):
                running += self.step(volume, label)
                if i % 20 == 0:
                    print(f"epoch {epoch} iter {i} loss {running / i:.3f}", flush=True)
            print(f"epoch {epoch} dice {self.dice():.3f} time {time.time() - t0:.1f}", flush=True)
