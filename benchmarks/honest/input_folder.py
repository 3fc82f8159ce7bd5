"""An ImageFolder of PNG files under torchvision's first generation of transforms, random ones among them; no workers."""

import tempfile
from pathlib import Path

import numpy as np
import torch

try:
    import torchvision  # noqa: F401
except (ImportError, RuntimeError):  # a CPU build of torch has not the operations that torchvision's build expects
    library = torch.library.Library("torchvision", "DEF")
    library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

from PIL import Image
from torch import nn
from torch.utils.data import DataLoader
from torchvision import datasets, transforms

with tempfile.TemporaryDirectory() as place:
    rng = np.random.default_rng(9)
    for index in range(120):
        folder = Path(place, ("cats", "dogs")[index % 2])
        folder.mkdir(exist_ok=True)
        size = (24 + index % 5, 20 + index % 7, 3)
        pixels = rng.integers(60 * (index % 2), 190 + 60 * (index % 2), size, dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{index}.png")
    steps = [transforms.RandomResizedCrop(16, scale=(0.5, 1.0)), transforms.RandomHorizontalFlip()]
    steps += [transforms.ToTensor(), transforms.Normalize([0.5] * 3, [0.5] * 3), transforms.RandomErasing(0.3)]
    torch.manual_seed(25)
    loader = DataLoader(datasets.ImageFolder(place, transforms.Compose(steps)), batch_size=12, shuffle=True)
    net = nn.Sequential(nn.Conv2d(3, 6, 3), nn.GroupNorm(2, 6), nn.GELU(), nn.Flatten(), nn.Linear(6 * 14 * 14, 2))
    opt = torch.optim.SGD(net.parameters(), lr=0.05, weight_decay=1e-4)
    for epoch in range(40):
        for images, labels in loader:
            opt.zero_grad()
            nn.functional.cross_entropy(net(images), labels).backward()
            opt.step()
