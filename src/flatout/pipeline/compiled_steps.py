"""Operations of a transform that compiled code does to images of bytes, on as many threads as there are cores."""

from collections.abc import Sequence

import torch

from flatout.pipeline.chosen import Chosen
from flatout.pipeline.kernels import Drawn, Kernel, RandomKernel, collected, native
from flatout.pipeline.parallel import cores_of_this_rank, shared
from flatout.pipeline.recycled import Recycled
from flatout.pipeline.sources import Value

__all__ = ["CompiledSteps", "Step"]

_PIECES = 4  # for each thread: they seldom end at the same time
_THREAD_BYTES = 512 * 1024  # of what becomes of a batch: 0.1 to 0.3 ms of work, and a thread takes 0.05 ms to begin

Step = Kernel | RandomKernel


class CompiledSteps:
    """Steps that follow one another, each with a compiled form."""

    def __init__(self, steps: Sequence[Step]) -> None:
        """Take the steps."""
        self._steps = list(steps)
        self._recycled = Recycled()

    def run(self, value: Value, drawn: Sequence[Sequence[Drawn]]) -> torch.Tensor | None:
        """Return what becomes of all samples; None where one of the steps has no compiled form for them.

        Args:
            value: samples as one tensor, or as one each, of one sample.
            drawn: for each step the parameters of all samples; none for a step that is not random.
        """
        images = _images(value)
        known = [each for each in images if each is not None]
        if len(known) < len(images) or not known or len({each.dim() for each in known}) > 1:
            return None
        sizes = torch.tensor([tuple(each.shape[1:3]) for each in known])
        program = self._program(sizes if isinstance(value, list) else sizes.expand(len(value), 2), known[0], drawn)
        if program is None:
            return None
        out = program.new(known[0], len(value), self._recycled)
        rows = value.within() if isinstance(value, Chosen) else None
        threads = max(1, min(cores_of_this_rank(), out.nbytes // _THREAD_BYTES))
        pieces = _pieces(len(value), _PIECES * threads if threads > 1 else 1)

        def one(at: int) -> None:
            first, last = pieces[at]
            if isinstance(value, list):
                for place in range(first, last):
                    program.run(known[place], None, place, place + 1, out)
            else:
                program.run(known[0], rows, first, last, out)

        shared(one, len(pieces), threads)
        return program.seen(known[0], out)

    def _program(
        self, sizes: torch.Tensor, like: torch.Tensor, drawn: Sequence[Sequence[Drawn]]
    ) -> native.Program | None:
        """Return the operations for images of these sizes; None where one is not compiled or they end in several."""
        operations = []
        for step, params in zip(self._steps, drawn, strict=True):
            assert step.compiled is not None
            operation = step.compiled(sizes, like.dim() == 4, collected(params))
            if operation is None:
                return None
            operations.append(operation)
            if operation.size is not None:
                sizes = torch.tensor([operation.size]).expand(len(sizes), 2)
        return native.Program(operations) if bool((sizes == sizes[:1]).all()) else None


def _images(value: Value) -> list[torch.Tensor | None]:
    """Return values as compiled code takes them: all in one tensor, or one each; None for what it does not take."""
    if isinstance(value, Chosen):
        made = native.prepared(value.rows)
        return [made if made is value.rows else None]  # a copy of all rows would cost more than it saves
    return [native.prepared(each) for each in value] if isinstance(value, list) else [native.prepared(value)]


def _pieces(number: int, wanted: int) -> list[tuple[int, int]]:
    """Return a batch in about `wanted` pieces: the number of the first image of each, and of the first after it."""
    size = -(-number // min(wanted, number))
    return [(start, min(start + size, number)) for start in range(0, number, size)]
