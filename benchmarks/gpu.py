"""The classic ResNet-18 ladder on a CUDA device, climbed by one `flatout tune` and one `flatout run`.

The script is the tutorial's: float32, channels first, pageable copies, `.item()` every step, synthetic 224x224 images
made in RAM. Printed: what the tune kept, and the median step of whole trainings, plain and under the recipe, in rounds.
No GPU has run this yet.

    python benchmarks/gpu.py [--quick] [--budget 10m] [--out FILE]
"""

import argparse
import platform
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from trainings import step_ms, tell

SCRIPT = """
import statistics, sys, time
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    def __init__(self):
        self.images = torch.randint(0, 256, (2048, 3, 224, 224), dtype=torch.uint8)
        self.labels = torch.randint(0, 1000, (2048,))

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.images[index].float() / 255, self.labels[index]


def block(inputs, outputs, stride):
    return nn.ModuleDict({
        "a": nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), "na": nn.BatchNorm2d(outputs),
        "b": nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), "nb": nn.BatchNorm2d(outputs),
        "skip": nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
        if stride > 1 or inputs != outputs else nn.Identity(),
    })


class ResNet18(nn.Module):
    def __init__(self):
        super().__init__()
        convolution = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.stem = nn.Sequential(convolution, nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        widths = [64, 64, 64, 128, 128, 256, 256, 512, 512]
        self.blocks = nn.ModuleList(block(i, o, 1 + (i != o)) for i, o in zip(widths, widths[1:]))
        self.head = nn.Linear(512, 1000)

    def forward(self, x):
        x = self.stem(x)
        for b in self.blocks:
            out = b["nb"](b["b"](b["na"](b["a"](x)).relu()))
            x = (out + b["skip"](x)).relu()
        return self.head(x.mean((2, 3)))


if __name__ == "__main__":
    torch.manual_seed(0)
    model, steps = ResNet18().cuda(), int(sys.argv[1])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    walls, last, images = [], time.perf_counter(), Images()
    while len(walls) < steps:
        for x, y in DataLoader(images, batch_size=128, shuffle=True):
            loss = nn.functional.cross_entropy(model(x.cuda()), y.cuda())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            loss.item()
            walls.append(time.perf_counter() - last)
            last = time.perf_counter()
            if len(walls) == steps:
                break
    print(f"step_ms {1e3 * statistics.median(walls[len(walls) // 3 :]):.3f}")
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="one round of short trainings")
    parser.add_argument("--budget", default="10m", help="of the tune")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("torch sees no CUDA device on this machine.")
    rounds, steps = (1, "40") if options.quick else (3, "120")
    lines = [f"{torch.cuda.get_device_name()}, torch {torch.__version__}, Python {platform.python_version()}"]
    plain, under = [], []
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "train.py").write_text(SCRIPT)
        tune = [sys.executable, "-m", "flatout", "tune", "--budget", options.budget, "train.py", "1000000"]
        lines.append(subprocess.run(tune, cwd=folder, capture_output=True, text=True, check=False).stdout)
        for _ in range(rounds):
            plain.append(step_ms([sys.executable, "train.py", steps], folder))
            under.append(step_ms([sys.executable, "-m", "flatout", "run", "train.py", steps], folder))
    ratios = [one / other for one, other in zip(plain, under, strict=True)]
    lines.append(
        f"n={rounds} rounds of {steps} steps: plain {statistics.median(plain):.1f} ms a step "
        f"({128e3 / statistics.median(plain):.0f} images/s), under the recipe {statistics.median(under):.1f} ms "
        f"({128e3 / statistics.median(under):.0f} images/s): {statistics.median(ratios):.2f}x "
        f"(from {min(ratios):.2f} to {max(ratios):.2f})"
    )
    tell(lines, options.out)


if __name__ == "__main__":
    main()
