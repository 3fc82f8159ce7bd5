"""What became of the calls of modules in one rank, told when the training has ended."""

import contextlib
import json
import os
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path

__all__ = ["InputAccount", "ModuleAccount", "RankAccount"]

_MOST_LOADERS = 50


@dataclass(slots=True)
class ModuleAccount:
    """Calls of one kind of module."""

    cut: int = 0
    rows: list[int] = field(default_factory=list)  # of the first call that was cut
    few: int = 0  # of fewer rows than there are ranks
    whole: dict[str, int] = field(default_factory=dict)  # calls by the reason why they were left whole


@dataclass(slots=True)
class InputAccount:
    """Batches of loaders without workers over one kind of data set, walked at one line."""

    name: str  # of the data set's class
    place: str
    batches: int = 0
    samples: int = 0
    divided: int = 0  # batches whose samples were made by one rank each
    shared: int = 0  # samples of these
    own: int = 0  # of them, made by this rank
    reason: str = ""  # why no batch is divided any more
    hint: str = ""  # why some were not


class RankAccount:
    """The account of this rank, written to the order's folder."""

    def __init__(self, folder: str, rank: int, size: int) -> None:
        """Note nothing yet."""
        self._file = Path(folder) / f"rank-{rank}.json"
        self._pid = os.getpid()
        self.facts: dict[str, object] = {"rank": rank, "size": size}
        self._modules: dict[str, ModuleAccount] = {}
        self._inputs: dict[tuple[str, str], InputAccount] = {}
        self._times: dict[str, float] = {}
        self._counts: Counter[str] = Counter()

    def cut(self, name: str, rows: tuple[int, ...]) -> None:
        """A call of a module of that name was cut."""
        module = self._modules.setdefault(name, ModuleAccount())
        module.cut += 1
        module.rows = module.rows or list(rows)

    def few(self, name: str) -> None:
        """A call had fewer rows than there are ranks."""
        self._modules.setdefault(name, ModuleAccount()).few += 1

    def whole(self, name: str, reason: str) -> None:
        """A call was left whole."""
        calls = self._modules.setdefault(name, ModuleAccount()).whole
        calls[reason] = calls.get(reason, 0) + 1

    def input(self, name: str, place: str) -> InputAccount:
        """Return what counts the batches of a loader over a data set of that name, walked at that line."""
        key = (name, place)
        if key not in self._inputs and len(self._inputs) >= _MOST_LOADERS:
            key = ("others", "")
        return self._inputs.setdefault(key, InputAccount(*key))

    def count(self, what: str) -> None:
        """Count something."""
        self._counts[what] += 1

    def took(self, what: str, seconds: float) -> None:
        """Add to the time that something took."""
        self._times[what] = self._times.get(what, 0.0) + seconds

    def write(self) -> None:
        """Write what was noted; whoever wanted to read it may be gone."""
        if os.getpid() != self._pid:
            return
        modules = {name: asdict(module) for name, module in self._modules.items()}
        inputs = {"inputs": [asdict(one) for one in self._inputs.values()]} if self._inputs else {}
        body = {**self.facts, "modules": modules, **inputs, "seconds": self._times, "counts": dict(self._counts)}
        with contextlib.suppress(OSError):
            self._file.write_text(json.dumps(body), encoding="utf-8")
