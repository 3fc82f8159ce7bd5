"""What torch's operations take on numbers too small for full precision, against others: on one thread of this CPU.

python benchmarks/denormals.py
"""

import platform
import sys
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F

ELEMENTS, TIMES = 1 << 18, 30
NORMAL, SMALL = 1.0, 1e-39
OPERATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "x * 0.5": lambda x: x * 0.5,
    "x + x": lambda x: x + x,
    "x / 3": lambda x: x / 3,
    "x.sqrt()": torch.sqrt,
    "x.rsqrt()": torch.rsqrt,
    "x ** 1.5": lambda x: x**1.5,
    "x.log()": torch.log,
    "x.exp()": torch.exp,
    "x.tanh()": torch.tanh,
    "x.sigmoid()": torch.sigmoid,
    "gelu(x)": F.gelu,
    "x.sum()": torch.sum,
    "softmax of rows": lambda x: x.view(512, 512).softmax(1),
    "matrix product": lambda x: x.view(512, 512) @ x.view(512, 512),
    "convolution": lambda x: F.conv2d(x.view(8, 8, 64, 64), torch.full((8, 8, 3, 3), 0.5)),
}


def least_ms(operation: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> float:
    """Return the shortest time of some, in milliseconds."""
    taken = []
    for _ in range(TIMES):
        begin = time.perf_counter()
        operation(x)
        taken.append(time.perf_counter() - begin)
    return min(taken) * 1e3


def main() -> int:
    """Print a row for each operation."""
    torch.set_num_threads(1)
    print(f"{platform.machine()}  torch {torch.__version__}  one thread, {ELEMENTS:,} numbers, least of n={TIMES}")
    with torch.no_grad():
        for name, operation in OPERATIONS.items():
            plain, small = (least_ms(operation, torch.full((ELEMENTS,), value)) for value in (NORMAL, SMALL))
            print(f"{name:<16} {plain:7.3f} ms  of denormal numbers {small:7.3f} ms  {small / plain:5.1f}x")
    return 0


if __name__ == "__main__":
    sys.exit(main())
