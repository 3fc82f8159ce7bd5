"""The classic MNIST guide's training, as people write it, on MNIST's files under ./data."""

import time

import torch

try:
    import torchvision  # noqa: F401
except (ImportError, RuntimeError):  # a CPU build of torch has not the operations that torchvision's build expects
    library = torch.library.Library("torchvision", "DEF")
    library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

from torch import nn, optim
from torch.utils.data import DataLoader
from torchvision import datasets, transforms

EPOCHS = 5


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(784, 128)
        self.fc2 = nn.Linear(128, 64)
        self.fc3 = nn.Linear(64, 10)

    def forward(self, x):
        x = torch.flatten(x, 1)
        x = torch.relu(self.fc1(x))
        x = torch.relu(self.fc2(x))
        return self.fc3(x)


def main():
    torch.manual_seed(1)
    transform = transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.1307,), (0.3081,))])
    dataset = datasets.MNIST("data", train=True, transform=transform)
    loader = DataLoader(dataset, batch_size=64, shuffle=True)
    model = MLP()
    criterion = nn.CrossEntropyLoss()
    optimizer = optim.Adam(model.parameters(), lr=1e-3)
    first = None
    for epoch in range(EPOCHS):
        running = 0.0
        for images, labels in loader:
            optimizer.zero_grad()
            loss = criterion(model(images), labels)
            loss.backward()
            optimizer.step()
            running += loss.item()
            first = first or time.perf_counter()
        print(f"epoch {epoch + 1}: loss {running / len(loader)!r}", flush=True)
    print(f"from the first to the last step: {time.perf_counter() - first:.4f} s")
    torch.save(model.state_dict(), "mnist.pt")


if __name__ == "__main__":
    main()
