"""torchvision's second generation: random crops, flips and colour by two workers that stay, cosine schedule."""

import torch

try:
    import torchvision  # noqa: F401
except (ImportError, RuntimeError):  # a CPU build of torch has not the operations that torchvision's build expects
    library = torch.library.Library("torchvision", "DEF")
    library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2


class Scenes(Dataset):
    def __init__(self, transform):
        generator = torch.Generator().manual_seed(4)
        self.data = torch.randint(0, 256, (160, 3, 20, 20), generator=generator, dtype=torch.uint8)
        self.targets = self.data.float().mean((1, 2, 3)) > 127
        self.transform = transform

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        return self.transform(self.data[index]), int(self.targets[index])


if __name__ == "__main__":
    torch.manual_seed(21)
    steps = [v2.RandomCrop(16, padding=2), v2.RandomHorizontalFlip(), v2.ColorJitter(0.2, 0.2)]
    steps += [v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.5] * 3, [0.25] * 3)]
    loader = DataLoader(Scenes(v2.Compose(steps)), 16, shuffle=True, num_workers=2, persistent_workers=True)
    net = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(392, 2))
    opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 30)
    for epoch in range(30):
        for images, labels in loader:
            opt.zero_grad()
            loss = nn.functional.cross_entropy(net(images), labels)
            loss.backward()
            opt.step()
        schedule.step()
