import time

import torch
from torch import nn
from torch.utils.data import DataLoader

from .augment import Pipeline
from .data import CLASSES, StreetSigns

CONFIG = dict(
    images=1400,
    batch=16,
    epochs=6,
    lr=1e-3,
    augment=["to_float", "gamma", "color_cast", "normalize", "random_patch"],  # <<
)


class SignNet(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        chans = [3, width, 2 * width, 2 * width, 3 * width]
        layers = []
        for i, o in zip(chans, chans[1:]):
            layers += [nn.Conv2d(i, o, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True)]
        self.trunk = nn.Sequential(*layers)
        self.kind = nn.Linear(3 * width * 36, CLASSES)
        self.box = nn.Linear(3 * width * 36, 3)

    def forward(self, x):
        z = self.trunk(x).flatten(1)
        return self.kind(z), self.box(z)


def main(cfg):
    torch.manual_seed(0)
    data = StreetSigns(cfg["images"], seed=0, pipeline=Pipeline(cfg["augment"]))
    loader = DataLoader(data, batch_size=cfg["batch"], shuffle=True, drop_last=True)
    net = SignNet().to(memory_format=torch.channels_last)
    opt = torch.optim.SGD(net.parameters(), lr=cfg["lr"] * 10, momentum=0.9)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, cfg["lr"] * 10, total_steps=cfg["epochs"] * len(loader))
    for epoch in range(cfg["epochs"]):
        t0 = time.time()
        hits = seen = 0
        err = 0.0
        for image, kind, target in loader:
            logits, box = net(image.to(memory_format=torch.channels_last))
            loss = nn.functional.cross_entropy(logits, kind) + 5 * nn.functional.smooth_l1_loss(box, target)
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
            hits += (logits.argmax(1) == kind).sum().item()
            err += (box.detach() - target).abs().mean().item()
            seen += len(kind)
        print(f"epoch {epoch}: acc {hits / seen:.3f}  box error {err / len(loader):.4f}  {time.time() - t0:.1f} s")


if __name__ == "__main__":
    main(CONFIG)
