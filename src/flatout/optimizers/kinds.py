"""How steps of torch's optimizers are told to compiled code that makes them in one pass; see one_pass.py."""

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from flatout.optimizers import _steps as compiled

__all__ = ["AdamStep", "Lists", "OptimizerStep", "SgdStep"]

_SIZES = (1, 5, 16, 31, 67, 1029, 70_001)  # of tensors to prove with: bodies and ends of vectors, several threads

Lists = Sequence[list[Any]]


class OptimizerStep(Protocol):
    """What a function of torch is given, as the compiled code wants it."""

    lists: int
    """Lists of tensors that the function is given."""

    ways: Sequence[int]
    """What is tried, in this order: which sums are fused, and whose square roots; see steps.c."""

    def key(self, lists: Lists, settings: dict[str, Any]) -> tuple[Any, ...] | None:
        """Return what decides how a step is made, but for the learning rate; None where it is torch's to do."""

    def moments(self, lists: Lists, settings: dict[str, Any]) -> Lists:
        """Return the lists that a step writes to besides the weights: tensors of their sizes."""

    def counters(self, lists: Lists) -> list[Any]:
        """Return the counters of steps."""

    def carry_out(self, told: list[int], settings: dict[str, Any], way: int) -> bool:
        """Make the step; False where memory overlaps or small numbers count as zero here, and nothing was done."""

    def telling(self, settings: dict[str, Any]) -> dict[str, Any]:
        """Return settings of which each way gives other bits: of some, sums or roots come out alike either way."""

    def scratch(self, generator: torch.Generator, counter: float) -> Lists:
        """Return tensors to prove with."""


class AdamStep:
    """Steps of Adam and AdamW: `torch.optim.adam._single_tensor_adam`, and before torch 2.7 that of AdamW."""

    lists = 6
    ways: Sequence[int] = (*range(8, 16), *range(8))  # the library's roots first: it is what torch asks

    def __init__(self, decoupled: bool = False) -> None:
        """Take weight decay for AdamW's where the function is not told."""
        self._decoupled = decoupled
        compiled.take_roots(_librarys_root())

    def key(self, lists: Lists, settings: dict[str, Any]) -> tuple[Any, ...] | None:
        """Return what decides how a step is made, but for the learning rate; None where it is torch's to do."""
        get = settings.get
        numbers = (get("beta1"), get("beta2"), get("eps"), get("weight_decay"))
        if get("amsgrad") or get("capturable") or get("differentiable") or get("has_complex"):
            return None
        if get("grad_scale") is not None or get("found_inf") is not None or not _plain(get("lr"), *numbers):
            return None
        if ctypes.c_float(1 - settings["beta1"]).value == 1:
            return None  # torch's vectors and their ends differ in the sign of a zero there
        return (*numbers, bool(get("maximize")), get("decoupled_weight_decay", self._decoupled))

    def moments(self, lists: Lists, settings: dict[str, Any]) -> Lists:
        """Return both averages."""
        return lists[2:4]

    def counters(self, lists: Lists) -> list[Any]:
        """Return the counters of steps."""
        return lists[5]

    def carry_out(self, told: list[int], settings: dict[str, Any], way: int) -> bool:
        """Make the step; False where memory overlaps or small numbers count as zero here, and nothing was done."""
        lr, beta1, beta2, eps = (settings[name] for name in ("lr", "beta1", "beta2", "eps"))
        decay, decoupled = settings["weight_decay"], settings.get("decoupled_weight_decay", self._decoupled)
        maximize, threads = settings["maximize"], torch.get_num_threads()
        return compiled.adam(told, lr, beta1, beta2, eps, decay, decoupled, maximize, way, threads)

    def telling(self, settings: dict[str, Any]) -> dict[str, Any]:
        """Return settings of which each way gives other bits; a decay that is decoupled adds no gradient to any."""
        common = {"lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.01, "maximize": False}
        return settings | common | ({"decoupled_weight_decay": False} if "decoupled_weight_decay" in settings else {})

    def scratch(self, generator: torch.Generator, counter: float) -> Lists:
        """Return tensors to prove with."""
        seconds = [each.square() for each in _numbers(generator)]
        counters = [torch.tensor(counter, dtype=torch.float32, device="cpu") for _ in _SIZES]
        return [_numbers(generator), _numbers(generator), _numbers(generator), seconds, [], counters]


class SgdStep:
    """Steps of SGD: `torch.optim.sgd._single_tensor_sgd`."""

    lists = 3
    ways: Sequence[int] = range(2)

    def key(self, lists: Lists, settings: dict[str, Any]) -> tuple[Any, ...] | None:
        """Return what decides how a step is made, but for the learning rate; None where it is torch's to do."""
        get = settings.get
        numbers = (get("momentum"), get("dampening"), get("weight_decay"))
        if get("has_sparse_grad") or get("grad_scale") is not None or get("found_inf") is not None:
            return None
        if not _plain(get("lr"), *numbers) or (get("momentum") != 0 and any(each is None for each in lists[2])):
            return None
        if get("momentum") == 0:
            return None  # one operation for each tensor as it is, or two: nothing was gained (0.88x to 1.02x of a step)
        return (*numbers, bool(get("nesterov")), bool(get("maximize")))

    def moments(self, lists: Lists, settings: dict[str, Any]) -> Lists:
        """Return the momenta, where there are any."""
        return lists[2:] if settings["momentum"] != 0 else ()

    def counters(self, lists: Lists) -> list[Any]:
        """Return nothing: steps are not counted."""
        return []

    def carry_out(self, told: list[int], settings: dict[str, Any], way: int) -> bool:
        """Make the step; False where memory overlaps or small numbers count as zero here, and nothing was done."""
        lr, momentum, dampening, decay = (settings[name] for name in ("lr", "momentum", "dampening", "weight_decay"))
        nesterov, maximize, threads = settings["nesterov"], settings["maximize"], torch.get_num_threads()
        return compiled.sgd(told, lr, momentum, dampening, decay, nesterov, maximize, way, threads)

    def telling(self, settings: dict[str, Any]) -> dict[str, Any]:
        """Return settings of which each way gives other bits."""
        common = {"lr": 0.1, "momentum": 0.9, "dampening": 0.25, "weight_decay": 0.01}
        return settings | common | {"nesterov": False, "maximize": False}

    def scratch(self, generator: torch.Generator, counter: float) -> Lists:
        """Return tensors to prove with."""
        return [_numbers(generator), _numbers(generator), _numbers(generator)]


def _librarys_root() -> int:
    """Return where the function is that torch takes square roots with; 0 where its build has none of a library."""
    try:
        function = ctypes.CDLL(str(Path(torch.__path__[0]) / "lib" / "libtorch_cpu.so")).vmsSqrt
    except (OSError, AttributeError):
        return 0
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def _plain(*numbers: object) -> bool:
    return all(type(each) is float or type(each) is int for each in numbers)


def _numbers(generator: torch.Generator) -> list[Tensor]:
    """Return tensors of numbers of many sizes, zeros of both signs among them, some at the same places in each list."""
    made = []
    for size in _SIZES:
        values = torch.randn(size, generator=generator, device="cpu", dtype=torch.float32)
        powers = torch.randn(size, generator=generator, device="cpu", dtype=torch.float32)
        kept = (values.abs() > 0.1) & (torch.arange(size, device="cpu") % 4 != 3)
        made.append(values * torch.exp2((8 * powers).round()) * kept)
    return made
