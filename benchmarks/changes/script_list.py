"""The list of scripts, and the little that they share: a table of features, and work that a sample takes.

A script is a function of `wrap` (what `flatout.compile_loader` does, or nothing) and `rec` (takes what is to be equal).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

SCRIPTS: dict[str, "Script"] = {}
NUM_SAMPLES, NUM_FEATURES = 256, 64


@dataclass(frozen=True)
class Script:
    """One script: what kind of change it makes, and the attributes of which one may be named as seen too late."""

    name: str
    kind: str
    function: Callable
    changes: bool = True
    attributes: tuple[str, ...] = ()
    source: str = ""


def script(kind, changes=True, attributes=()):
    """Register a function as a script."""

    def register(function):
        name = function.__name__
        if name in SCRIPTS:
            raise ValueError(f"two scripts are called {name}")
        SCRIPTS[name] = Script(name, kind, function, changes, tuple(attributes))
        return function

    return register


def features(num=NUM_SAMPLES, width=NUM_FEATURES, number=7):
    """Return a table of features, the same each time."""
    return torch.randn(num, width, generator=torch.Generator().manual_seed(number))


def decode(size=4000):
    """Take the time that reading a small sample takes: about 30 us."""
    values = np.arange(size, dtype=np.float32)[::-1].copy()
    values.sort()
    return float(values[0])
