"""`RandomApply`, `RandomChoice` and `RandomOrder`: some samples of a batch go one way, others another."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from flatout.pipeline.compile.chain import flatten
from flatout.pipeline.compile.kernels.core.kernel import Drawn, Kernel, Params, RandomKernel, Unsuited
from flatout.pipeline.compile.kernels.core.original import is_v2
from flatout.pipeline.compile.kernels.core.row_copies import put, taken
from flatout.pipeline.compile.rng import Generator, order, rounded, share, torchs
from flatout.pipeline.compile.sample_form import SampleForm

__all__ = ["random_apply", "random_choice", "random_order"]

_KernelFor = Callable[[Any, SampleForm], Kernel | RandomKernel | None]
_Choose = Callable[[Generator], list[int]]  # draws which ways a sample goes, one after the other


class _Way:
    """Operations that are done one after the other, and their kernels; the form of a sample stays."""

    def __init__(self, name: str, steps: Sequence[tuple[Any, Kernel | RandomKernel]]) -> None:
        """Take a name, which comes before those of the parameters."""
        self._steps = [(f"{name}.{place}.", *step) for place, step in enumerate(steps)]
        self._shapes: dict[tuple[str, tuple[int, ...]], tuple[int, ...]] = {}
        self.exact = all(kernel.exact for _, kernel in steps if isinstance(kernel, RandomKernel))
        self._random = [isinstance(kernel, RandomKernel) for _, kernel in steps]

    def draw(self, shape: tuple[int, ...], generator: Generator, image: bool) -> Drawn:
        drawn: Drawn = {}
        for place, (name, _, kernel) in enumerate(self._steps):
            if isinstance(kernel, RandomKernel):
                drawn |= {name + key: value for key, value in kernel.draw_one(shape, generator).items()}
                shape = kernel.shape_after(shape)
            elif any(self._random[place:]):
                shape = self._shape(name, kernel, shape, image)
        return drawn

    def _shape(self, name: str, kernel: Kernel, shape: tuple[int, ...], image: bool) -> tuple[int, ...]:
        if (name, shape) not in self._shapes:
            self._shapes[name, shape] = kernel.run(torch.zeros(shape, dtype=torch.uint8 if image else None)).shape
        return self._shapes[name, shape]

    def run(self, out: Tensor, chosen: Tensor, params: Params) -> None:
        """Do it to the chosen rows."""
        if not len(chosen) or not self._steps:
            return
        batch = made = taken(out, chosen)
        for name, _, kernel in self._steps:
            if isinstance(kernel, RandomKernel):
                made = kernel.run(made, _own(params, name, chosen))
            else:
                made = kernel.run(made)
        if made.shape != batch.shape or made.dtype != batch.dtype:
            raise Unsuited(f"samples of {tuple(batch.shape[1:])} become {tuple(made.shape[1:])} in some cases only")
        put(out, chosen, made)

    def forced(self, value: Any, params: Params, i: int) -> Any:
        for name, operation, kernel in self._steps:
            if isinstance(kernel, RandomKernel):
                value = kernel.forced(value, _own(params, name), i)
            else:
                value = operation(value)
        return value


def random_apply(operation: Any, form: SampleForm, kernel_for: _KernelFor) -> RandomKernel | None:
    """Return the kernel of `RandomApply` where every operation in it has a kernel and the form stays."""
    way = _way("1", list(operation.transforms), form, kernel_for)
    includes = not is_v2(operation)  # v1 applies at `drawn <= p`, v2 at `drawn < p`

    def choose(generator: Generator) -> list[int]:
        drawn, limit = share(generator), rounded(operation.p)
        return [int(drawn < limit or (includes and drawn == limit))]

    return None if way is None else _ways("RandomApply", form, [_Way("0", []), way], choose)


def random_choice(operation: Any, form: SampleForm, kernel_for: _KernelFor) -> RandomKernel | None:
    """Return the kernel of `RandomChoice`, exact in v2 only: v1 draws from Python's generator."""
    ways = _each_way(operation, form, kernel_for)
    shares = [float(each) for each in operation.p or [1.0] * len(operation.transforms)]
    if ways is None or len(shares) != len(ways):
        return None

    def choose(generator: Generator) -> list[int]:
        return [int(torch.multinomial(torch.tensor(shares), 1, generator=torchs(generator)))]

    return _ways("RandomChoice", form, ways, choose, exact=is_v2(operation))


def random_order(operation: Any, form: SampleForm, kernel_for: _KernelFor) -> RandomKernel | None:
    """Return the kernel of the `RandomOrder` of v2."""
    ways = _each_way(operation, form, kernel_for)
    if ways is None:
        return None
    number = len(ways)
    return _ways("RandomOrder", form, ways, lambda generator: order(number, generator))


def _each_way(operation: Any, form: SampleForm, kernel_for: _KernelFor) -> list[_Way] | None:
    ways = [_way(str(number), [one], form, kernel_for) for number, one in enumerate(operation.transforms)]
    known = [way for way in ways if way is not None]
    return known if len(known) == len(ways) else None


def _way(name: str, transforms: list[Any], form: SampleForm, kernel_for: _KernelFor) -> _Way | None:
    """Return the operations with their kernels; None where one has none or the form does not stay."""
    steps: list[tuple[Any, Kernel | RandomKernel]] = []
    for operation in (part for transform in transforms for part in flatten(transform)):
        kernel = kernel_for(operation, form)
        if kernel is None or kernel.after != form:
            return None
        steps.append((operation, kernel))
    return _Way(name, steps)


def _ways(name: str, form: SampleForm, ways: Sequence[_Way], choose: _Choose, exact: bool = True) -> RandomKernel:
    """Return the kernel that sends each sample along the ways that are chosen for it."""

    def draw(shape: tuple[int, ...], generator: Generator = None) -> Drawn:
        drawn: Drawn = {"way": choose(generator)}
        for number in drawn["way"]:
            drawn |= ways[number].draw(shape, generator, form.kind == "image")
        return drawn

    def run(batch: Tensor, params: Params) -> Tensor:
        out = batch.clone(memory_format=torch.preserve_format)
        for chosen in params["way"].unbind(1):
            for number, way in enumerate(ways):
                way.run(out, (chosen == number).nonzero()[:, 0], params)
        return out

    def forced(value: Any, params: Params, i: int) -> object:
        for number in params["way"][i].tolist():
            value = ways[number].forced(value, params, i)
        return value

    return RandomKernel(name, form, draw, run, forced, exact and all(way.exact for way in ways))


def _own(params: Params, prefix: str, rows: Tensor | None = None) -> Params:
    """Return the parameters of one step, of the chosen rows."""
    own = {key.removeprefix(prefix): value for key, value in params.items() if key.startswith(prefix)}
    return own if rows is None else {key: _of_rows(value, rows) for key, value in own.items()}


def _of_rows(value: Any, rows: Tensor) -> Any:
    return [value[row] for row in rows.tolist()] if isinstance(value, list) else value[rows]
