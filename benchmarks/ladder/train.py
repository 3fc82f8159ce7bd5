"""The training of PyTorch's profiler tutorial, as people write it: ResNet-18 on small images, resized one by one."""

import sys
import time

import numpy as np
import torch

try:
    import torchvision  # noqa: F401
except (ImportError, RuntimeError):  # a CPU build of torch has not the operations that torchvision's build expects
    library = torch.library.Library("torchvision", "DEF")
    library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

from PIL import Image
from torch import nn, optim
from torch.utils.data import DataLoader, Dataset
from torchvision import models, transforms

IMAGES, SIDE, EPOCHS = 9984, 224, 4


class Pictures(Dataset):
    """Small colour images that can be learned, as CIFAR-10 holds them."""

    def __init__(self, number, transform):
        draw = np.random.RandomState(0)
        self.targets = draw.randint(0, 10, number).tolist()
        patterns = draw.randint(0, 200, (10, 32, 32, 3))
        noise = draw.randint(-120, 121, (number, 32, 32, 3), dtype=np.int16)
        self.data = (patterns[self.targets] + noise).clip(0, 255).astype(np.uint8)
        self.transform = transform

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        return self.transform(Image.fromarray(self.data[index])), self.targets[index]


def main(epochs):
    torch.manual_seed(1)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    transform = transforms.Compose(
        [transforms.Resize(SIDE), transforms.ToTensor(), transforms.Normalize((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))]
    )
    dataset = Pictures(IMAGES, transform)
    loader = DataLoader(dataset, batch_size=32, shuffle=True)
    model = models.resnet18(num_classes=10).to(device)
    criterion = nn.CrossEntropyLoss()
    optimizer = optim.SGD(model.parameters(), lr=0.001, momentum=0.9)
    first = None
    for epoch in range(epochs):
        start, running, seen = time.perf_counter(), 0.0, 0
        for images, labels in loader:
            images, labels = images.to(device), labels.to(device)
            loss = criterion(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            running += loss.item()
            seen += len(labels)
            first = first or time.perf_counter()
        rate = seen / (time.perf_counter() - start)
        print(f"epoch {epoch + 1}: loss {running / len(loader)!r}, {rate:.1f} images/s", flush=True)
    print(f"from the first to the last step: {time.perf_counter() - first:.4f} s")
    torch.save(model.state_dict(), "weights.pt")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else EPOCHS)
