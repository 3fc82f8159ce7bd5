"""A step of the optimizer and of the training, as torch's loop, one pass and torch's fused code make it, in turn.

Medians over the steps of a turn, then over turns.

    python benchmarks/optimizer_steps.py [--turns 6] [--steps 300] [--record]
"""

import argparse
import platform
import statistics
import time
from collections.abc import Callable, Iterator

import torch
from record import record
from torch import Tensor, nn

from flatout.fixes.core.apply import install_fix
from flatout.fixes.core.site import Site
from flatout.probe.core.event_log import EventLog
from flatout.probe.core.seams import Seams
from flatout.probe.model.modules import ModuleWatch
from flatout.schema.trial import Selection

WAYS = ("torch's loop", "one pass", "torch's fused code")
FIXES = {"one pass": "one-pass-optimizer"}


def mnist_guide() -> tuple[nn.Module, Tensor]:
    """The MNIST guide's network and its batch."""
    layers = [nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10)]
    return nn.Sequential(*layers), torch.randn(64, 784)


def small_convolutions() -> tuple[nn.Module, Tensor]:
    """Twelve convolutions with batch statistics, 48 tensors."""
    layers: list[nn.Module] = []
    for before, after in zip((3, *[16] * 11), [16] * 12, strict=True):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten()), torch.randn(8, 3, 16, 16)


def transformer() -> tuple[nn.Module, Tensor]:
    """Four encoder layers of width 256, 48 tensors, 3.2 million weights."""
    layer = nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, 4, enable_nested_tensor=False), torch.randn(8, 16, 256)


OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "Adam": lambda weights, **more: torch.optim.Adam(weights, lr=1e-3, **more),
    "AdamW": lambda weights, **more: torch.optim.AdamW(weights, lr=1e-3, **more),
    "SGD, momentum, decay": lambda weights, **more: torch.optim.SGD(weights, 1e-3, 0.9, weight_decay=1e-4, **more),
    "SGD, decay": lambda weights, **more: torch.optim.SGD(weights, 1e-3, weight_decay=1e-4, **more),
}


def one_turn(
    make: Callable[[], tuple[nn.Module, Tensor]], optimizer: str, way: str, sites: dict[str, Site], steps: int
) -> Iterator:
    """Yield the microseconds of the optimizer and of the whole step, both medians, and the weights that came out."""
    torch.manual_seed(0)
    model, batch = make()
    stepped = OPTIMIZERS[optimizer](model.parameters(), **({"fused": True} if way == WAYS[2] else {}))
    for name, site in sites.items():
        site.enable() if way == name else site.disable()
    times = []
    for _ in range(steps + 20):
        start = time.perf_counter()
        stepped.zero_grad()
        model(batch).square().mean().backward()
        before = time.perf_counter()
        stepped.step()
        end = time.perf_counter()
        times.append((end - before, end - start))
    for each in zip(*times[20:], strict=True):
        yield statistics.median(each) * 1e6
    yield [each.detach() for each in model.parameters()]


def main() -> None:
    """Print a row for each network, optimizer and way."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=6)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--record", action="store_true", help="add the ratios to benchmarks/history")
    options = parser.parse_args()
    seams = Seams()
    modules = ModuleWatch(EventLog(lambda step: None, lambda stretch: None))
    sites = {way: install_fix(Selection(name, {}), seams, modules) for way, name in FIXES.items()}
    assert not any(site.failure for site in sites.values())
    print(
        f"torch {torch.__version__}, {platform.machine()}, {torch.get_num_threads()} threads; "
        f"n={options.turns} turns of {options.steps} steps each (transformer: 50): medians (the range of turns)"
    )
    print(f"{'':42}{'optimizer, us':>24}{'its ratio':>20}{'step, us':>24}{'its ratio':>20}  weights")
    for make, steps in ((mnist_guide, options.steps), (small_convolutions, options.steps), (transformer, 50)):
        for optimizer in OPTIMIZERS:
            found = [[list(one_turn(make, optimizer, way, sites, steps)) for way in WAYS] for _ in range(options.turns)]
            for place, way in enumerate(WAYS):
                pairs = [(turn[0], turn[place]) for turn in found]
                print(f"{make.__name__:20}{optimizer:22}" + _row(pairs) + f"  {way}")
                if options.record and place:
                    _record(f"{make.__name__}, {optimizer}", way, pairs)


def _row(pairs: list[tuple[list, list]]) -> str:
    cells = []
    for which in (0, 1):
        times = [mine[which] for _, mine in pairs]
        ratios = _ratios(pairs, which)
        cells.append(f"{statistics.median(times):8.0f} ({min(times):.0f} to {max(times):.0f})".rjust(24))
        cells.append(f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})".rjust(20))
    return "".join(cells) + "  " + _bits(pairs)


def _ratios(pairs: list[tuple[list, list]], which: int) -> list[float]:
    return [loop[which] / mine[which] for loop, mine in pairs]


def _bits(pairs: list[tuple[list, list]]) -> str:
    same = all(all(map(torch.equal, loop[2], mine[2])) for loop, mine in pairs)
    return "the same bits" if same else "other bits"


def _record(case: str, way: str, pairs: list[tuple[list, list]]) -> None:
    note = f"{_bits(pairs)}; range of turns"
    for which, step in enumerate(("optimizer step", "training step")):
        found = _ratios(pairs, which)
        middle = statistics.median(found)
        more = {"low": min(found), "high": max(found), "n": len(found), "n_of": "turns", "unit": "x", "note": note}
        record("optimizer_steps", f"{case}: {step}, {way}", middle, **more)


if __name__ == "__main__":
    main()
