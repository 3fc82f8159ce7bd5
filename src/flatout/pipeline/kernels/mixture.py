"""`RandomApply` and `RandomChoice`: some samples of a batch go one way, others another."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from flatout.pipeline.form import Form
from flatout.pipeline.kernels.chain import flatten
from flatout.pipeline.kernels.kernel import Kernel, Params, RandomKernel, Unsuited
from flatout.pipeline.kernels.rows import put, taken

__all__ = ["random_apply", "random_choice"]

_KernelFor = Callable[[Any, Form], Kernel | RandomKernel | None]
_Steps = list[tuple[Any, Kernel | RandomKernel]]


def random_apply(operation: Any, form: Form, kernel_for: _KernelFor) -> RandomKernel | None:
    """Return the kernel of `RandomApply` where every operation in it has a kernel and the form stays."""
    way = _way(list(operation.transforms), form, kernel_for)
    share = float(operation.p)
    return None if way is None else _ways("RandomApply", form, [[], way], [1 - share, share])


def random_choice(operation: Any, form: Form, kernel_for: _KernelFor) -> RandomKernel | None:
    """Return the kernel of `RandomChoice` where every operation in it has a kernel and the form stays."""
    ways = [_way([transform], form, kernel_for) for transform in operation.transforms]
    known = [way for way in ways if way is not None]
    shares = operation.p or [1.0] * len(known)
    if len(known) < len(ways) or len(shares) != len(ways):
        return None
    return _ways("RandomChoice", form, known, [float(share) for share in shares])


def _way(transforms: list[Any], form: Form, kernel_for: _KernelFor) -> _Steps | None:
    """Return the operations with their kernels; None where one has none or the form does not stay."""
    steps: _Steps = []
    for operation in (part for transform in transforms for part in flatten(transform)):
        kernel = kernel_for(operation, form)
        if kernel is None or kernel.after != form:
            return None
        steps.append((operation, kernel))
    return steps


def _ways(name: str, form: Form, ways: Sequence[_Steps], shares: list[float]) -> RandomKernel:
    """Return the kernel that sends each sample along one of the ways, by their shares."""
    limits = torch.tensor(shares, dtype=torch.float64).cumsum(0) / sum(shares)

    def draw(num: int, shape: tuple[int, ...], generator: torch.Generator | None = None) -> Params:
        drawn = torch.rand(num, dtype=torch.float64, generator=generator)
        params = {"way": torch.searchsorted(limits, drawn, right=True).clamp_(max=len(ways) - 1)}
        for place, kernel in _random(ways):
            own = kernel.draw(num, shape, generator=generator)
            params |= {f"{place}.{key}": value for key, value in own.items()}
        return params

    def run(batch: Tensor, params: Params) -> Tensor:
        out = batch.clone(memory_format=torch.preserve_format)
        for number, way in enumerate(ways):
            chosen = (params["way"] == number).nonzero()[:, 0]
            if len(chosen) and way:
                put(out, chosen, _along(way, taken(batch, chosen), params, (number, chosen)))
        return out

    def forced(value: Any, params: Params, i: int) -> object:
        number = int(params["way"][i])
        for step, (operation, kernel) in enumerate(ways[number]):
            if isinstance(kernel, RandomKernel):
                value = kernel.forced(value, _own(params, f"{number}.{step}.", slice(None)), i)
            else:
                value = operation(value)
        return value

    return RandomKernel(name, form, draw, run, forced)


def _random(ways: Sequence[_Steps]) -> list[tuple[str, RandomKernel]]:
    return [
        (f"{number}.{step}", kernel)
        for number, way in enumerate(ways)
        for step, (_, kernel) in enumerate(way)
        if isinstance(kernel, RandomKernel)
    ]


def _along(way: _Steps, batch: Tensor, params: Params, place: tuple[int, Tensor]) -> Tensor:
    """Return the chosen rows after all steps of one way."""
    number, chosen = place
    made = batch
    for step, (_, kernel) in enumerate(way):
        made = _run(kernel, made, _own(params, f"{number}.{step}.", chosen))
    if made.shape != batch.shape or made.dtype != batch.dtype:
        raise Unsuited(f"samples of {tuple(batch.shape[1:])} become {tuple(made.shape[1:])} in some cases only")
    return made


def _run(kernel: Kernel | RandomKernel, batch: Tensor, params: Params) -> Tensor:
    return kernel.run(batch, params) if isinstance(kernel, RandomKernel) else kernel.run(batch)


def _own(params: Params, prefix: str, rows: Any) -> Params:
    """Return the parameters of one step, of the chosen rows."""
    return {key.removeprefix(prefix): value[rows] for key, value in params.items() if key.startswith(prefix)}
