"""A small ResNet on 32x32 images, trained on the CPU, written as a tutorial would; options are changes made by hand."""

import argparse
import statistics
import time

import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        out = functional.relu(self.bn1(self.conv1(x)))
        return functional.relu(self.bn2(self.conv2(out)) + self.shortcut(x))


class ResNet(nn.Module):
    def __init__(self, num_classes=10):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU())
        widths, strides = (16, 16, 32, 32, 64, 64), (1, 1, 2, 1, 2, 1)
        blocks = [Block(a, b, s) for a, b, s in zip((16, *widths[:-1]), widths, strides, strict=True)]
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(64, num_classes)

    def forward(self, x):
        return self.head(self.blocks(self.stem(x)).mean(dim=(2, 3)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--compile", action="store_true")
    options = parser.parse_args()
    torch.manual_seed(0)
    if options.threads:
        torch.set_num_threads(options.threads)
    labels = torch.randint(0, 10, (2048,))
    images = torch.randn(2048, 3, 32, 32) * 0.5 + labels[:, None, None, None] * 0.1
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(images, labels), batch_size=64, shuffle=True)
    model = ResNet()
    if options.channels_last:
        model = model.to(memory_format=torch.channels_last)
    if options.compile:
        model = torch.compile(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
    walls, step, last = [], 0, time.perf_counter()
    while step < options.steps:
        for x, y in loader:
            if options.channels_last:
                x = x.contiguous(memory_format=torch.channels_last)
            with torch.autocast("cpu", torch.bfloat16, enabled=options.bf16):
                loss = functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            now = time.perf_counter()
            walls.append(now - last)
            last = now
            if step == options.steps:
                break
    late = walls[len(walls) // 4 :]
    print(f"step_ms {1e3 * statistics.median(late):.3f} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
