"""Compiled code beside Pillow, one operation at a time, on one core: milliseconds an image.

Both do the same images in turn, round after round; what they give is compared, and a ratio is taken within a round.

    python benchmarks/compiled_code.py [--rounds N]
"""

import argparse
import platform
import statistics
import time
from collections.abc import Callable
from importlib.metadata import version

import numpy as np
import torch
from PIL import Image, ImageEnhance

from flatout.native import native
from flatout.native.operation import Operation

IMAGES, SIDE = 32, 224
BILINEAR, BICUBIC = Image.Resampling.BILINEAR, Image.Resampling.BICUBIC
STEPS = 87  # that hues are turned by, of 255

Both = tuple[Operation | None, Callable[[int], Image.Image]]


def pixels(height: int, width: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(0).integers(0, 256, (IMAGES, height, width, 3), dtype=np.uint8))


def resized(batch: torch.Tensor, boxes: torch.Tensor, chosen: int) -> Both:
    def by_pillow(number: int) -> Image.Image:
        top, left, height, width = boxes[number].tolist()
        window = Image.fromarray(batch[number].numpy()).crop((left, top, left + width, top + height))
        return window.resize((SIDE, SIDE), chosen)

    return native.resample(boxes, (SIDE, SIDE), chosen), by_pillow


def jittered(batch: torch.Tensor) -> Both:
    def by_pillow(number: int) -> Image.Image:
        image = Image.fromarray(batch[number].numpy())
        for change in (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color):
            image = change(image).enhance(1.1)
        return image

    order, strengths = torch.arange(4).expand(IMAGES, 4), torch.tensor([1.1, 1.1, 1.1, -1.0]).expand(IMAGES, 4)
    return native.jitter(order, strengths), by_pillow


def turned(batch: torch.Tensor) -> Both:
    def by_pillow(number: int) -> Image.Image:
        hues = np.array(Image.fromarray(batch[number].numpy()).convert("HSV"))
        hues[..., 0] += np.uint8(STEPS)
        return Image.frombytes("HSV", (SIDE, SIDE), hues.tobytes()).convert("RGB")

    order, strengths = torch.arange(4).expand(IMAGES, 4), torch.tensor([-1.0, -1.0, -1.0, STEPS]).expand(IMAGES, 4)
    return native.jitter(order, strengths), by_pillow


def timed(work: Callable[[], object]) -> tuple[float, object]:
    start = time.perf_counter()
    made = work()
    return (time.perf_counter() - start) / IMAGES * 1e3, made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30)
    rounds = parser.parse_args().rounds
    if not native.available():
        raise SystemExit("flatout was installed without a C compiler: there is nothing to time")
    torch.set_num_threads(1)
    small, photos, large = pixels(32, 32), pixels(375, 500), pixels(SIDE, SIDE)
    whole = torch.tensor([[0, 0, 32, 32]]).expand(IMAGES, 4)
    windows = torch.tensor([[20, 30, 300 - number % 7, 380 - number % 11] for number in range(IMAGES)])
    cases = {
        f"32x32 resized to {SIDE}x{SIDE}, bilinear": (small, *resized(small, whole, BILINEAR)),
        f"windows of about 300x380 resized to {SIDE}x{SIDE}, bilinear": (photos, *resized(photos, windows, BILINEAR)),
        "the same, bicubic": (photos, *resized(photos, windows, BICUBIC)),
        f"brightness, contrast, saturation of {SIDE}x{SIDE}": (large, *jittered(large)),
        f"hues of {SIDE}x{SIDE} turned": (large, *turned(large)),
    }
    print(f"{platform.machine()}, one core, torch {version('torch')}, pillow {version('pillow')}, n={rounds} rounds")
    print(f"{'ms an image':64}{'compiled':>10}{'Pillow':>10}  times as fast, 5% to 95%")
    for name, (batch, operation, by_pillow) in cases.items():
        ours, theirs = [], []
        for _ in range(rounds):
            took, made = timed(lambda: native.operated(operation, batch))  # noqa: B023 - called here
            ours.append(took)
            took, wanted = timed(lambda: [by_pillow(number) for number in range(IMAGES)])  # noqa: B023
            theirs.append(took)
        assert all(np.array_equal(np.asarray(one), other.numpy()) for one, other in zip(wanted, made, strict=True)), (
            name
        )
        ratios = sorted(other / one for one, other in zip(ours, theirs, strict=True))
        low, high = ratios[len(ratios) // 20], ratios[-1 - len(ratios) // 20]
        print(
            f"{name:64}{statistics.median(ours):>10.3f}{statistics.median(theirs):>10.3f}"
            f"  {statistics.median(ratios):.1f} ({low:.1f} to {high:.1f})"
        )


if __name__ == "__main__":
    main()
