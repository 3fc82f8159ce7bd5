"""Operations of a transform that compiled code does to images of bytes, on as many threads as there are cores."""

from collections.abc import Sequence
from functools import partial

import torch

from flatout.native import native
from flatout.native.multi_batch import MultiBatchWrite, torchs_wait
from flatout.native.recycled_memory import RECYCLED_BYTES, RecycledMemory
from flatout.pipeline.cache.row_view import RowView
from flatout.pipeline.compile.kernels.core.kernel import Drawn, Kernel, RandomKernel, Unsuited, collected
from flatout.pipeline.compile.parallel import cores_of_this_rank, shared
from flatout.pipeline.compile.row_operations import TORCHS_BYTES, MakeOne, RowOperation
from flatout.pipeline.read.sources import Value

__all__ = ["NativeSteps", "Step"]

_THREAD_BYTES = 512 * 1024  # of what becomes of a batch: 0.1 to 0.3 ms of work; one of Python's threads begins in 0.05

Step = Kernel | RandomKernel


class NativeSteps:
    """Steps that follow one another, each with a compiled form."""

    def __init__(self, steps: Sequence[Step]) -> None:
        """Take the steps."""
        self._steps = list(steps)
        self._recycled = RecycledMemory()
        self._fixed = not any(isinstance(step, RandomKernel) for step in self._steps)
        self._programs: dict[object, native.Program | None] = {}  # of steps that do the same to every sample

    def run(self, value: Value, drawn: Sequence[Sequence[Drawn]]) -> torch.Tensor | None:
        """Return what becomes of all samples; None where one of the steps has no compiled form for them.

        Args:
            value: samples as one tensor, or as one each, of one sample.
            drawn: for each step the parameters of all samples; none for a step that is not random.
        """
        if isinstance(value, list):
            return self._of_each(value, drawn)
        rows = value.rows if isinstance(value, RowView) else value
        images = native.prepared(rows)
        if images is None or (isinstance(value, RowView) and images is not rows):
            return None  # a copy of all rows would cost more than it saves
        program = self._of_one_shape(len(value), images, drawn)
        if program is None:
            return None
        out = program.new(images, len(value), self._recycled)
        lying = value.places if isinstance(value, RowView) else None
        threads, waiting = _threads_for(out.nbytes)
        program.run(images, lying, 0, len(value), out, threads=threads, waiting=waiting)
        return program.seen(images, out)

    def write(self, value: Value, drawn: Sequence[Sequence[Drawn]], into: RowView) -> bool:
        """Write what becomes of samples of one shape to its places; False where they are not, or it lies otherwise."""
        images = native.prepared(value) if isinstance(value, torch.Tensor) else None
        program = None if images is None else self._of_one_shape(len(images), images, drawn)
        if images is None or program is None or len(images) != len(into):
            return False
        like = program.seen(images, program.new(images, 1, self._recycled))
        if (like.dtype, like.shape[1:], like.stride()) != (into.rows.dtype, into.rows.shape[1:], into.rows.stride()):
            return False
        threads, waiting = _threads_for(len(images) * like.nbytes)
        program.run(images, None, 0, len(images), into.rows, places=into.places, threads=threads, waiting=waiting)
        return True

    def made_of_rows(self, rows: torch.Tensor) -> tuple[MakeOne, RowOperation] | None:
        """Return what makes of places among `rows` (int64, of the CPU) what becomes of them, of one batch and several.

        None where they have no compiled form, or something else is done to each; `Unsuited` is raised later, where
        torch's default type has changed since. What holds for `RowView` as `run` takes it holds for places, too.
        """
        images = native.prepared(rows)
        if images is not rows or not self._fixed:
            return None
        program = self._of_one_shape(1, images, [[] for _ in self._steps])
        if program is None or not program.same_for_all:
            return None
        like, recycled = program.new(images, 1, self._recycled), self._recycled
        shape, dtype, run = like.shape[1:], like.dtype, program.from_rows(images, like)
        new = partial(torch.empty, dtype=dtype, device=torch.device("cpu"))
        as_it_is, most = program.seen(images, like) is like, max(like.nbytes, images[:1].nbytes)
        lying = (images.data_ptr(), len(images), torch.get_default_dtype())
        fill = MultiBatchWrite(program.encode(images), like.nbytes, images, program)
        few, some = (number // like.nbytes for number in (TORCHS_BYTES, min(RECYCLED_BYTES, 2 * _THREAD_BYTES)))

        def check() -> None:
            if (images.data_ptr(), images.shape[0], torch.get_default_dtype()) != lying:
                raise Unsuited("torch's default type has changed, or where the images lie")

        def made(places: torch.Tensor) -> torch.Tensor:
            check()
            number = places.shape[0]  # len() of a tensor takes three times as long
            if number < some:
                out = new((number, *shape))
                run(places.contiguous(), out, 1 if number < few else torch.get_num_threads(), True)
            else:
                out = recycled.empty((number, *shape), dtype)
                run(places.contiguous(), out, *_threads_for(out.nbytes))
            return out if as_it_is else program.seen(images, out)

        def write(places: torch.Tensor, batches: Sequence[torch.Tensor], each: int, threads: int) -> None:
            check()
            fill(places, batches, each, threads)

        return made, RowOperation(lambda number: new((number, *shape)), write, most, partial(program.seen, images))

    def _of_each(self, values: list[torch.Tensor], drawn: Sequence[Sequence[Drawn]]) -> torch.Tensor | None:
        images = [each for each in map(native.prepared, values) if each is not None]
        if len(images) < len(values) or not images or len({each.dim() for each in images}) > 1:
            return None
        program = self._program(torch.tensor([tuple(each.shape[1:3]) for each in images]), images[0], drawn)
        if program is None:
            return None
        out = program.new(images[0], len(values), self._recycled)
        shared(lambda at: program.run(images[at], None, at, at + 1, out), len(values), _most_threads(out.nbytes))
        return program.seen(images[0], out)

    def _of_one_shape(
        self, number: int, images: torch.Tensor, drawn: Sequence[Sequence[Drawn]]
    ) -> native.Program | None:
        kind = (number, images.shape[1:], torch.get_default_dtype())
        if self._fixed and kind in self._programs:
            return self._programs[kind]
        program = self._program(torch.tensor([tuple(images.shape[1:3])]).expand(number, 2), images, drawn)
        if self._fixed:
            self._programs[kind] = program
        return program

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


def _most_threads(num_bytes: int) -> int:
    return max(1, min(cores_of_this_rank(), num_bytes // _THREAD_BYTES))


def _threads_for(num_bytes: int) -> tuple[int, bool]:
    """Return how many threads write so much, and whether they are torch's, which wait for work.

    32 images that are enlarged to 19 MB take 0.41 to 0.52 ms on two threads of torch, 0.51 to 0.60 on two that are
    begun for them, 0.73 to 0.79 on one (n=8 medians of 312 batches in turn, 2 cores of an AMD EPYC).
    """
    if num_bytes >= 2 * _THREAD_BYTES and torchs_wait():
        return torch.get_num_threads(), True
    return _most_threads(num_bytes), False
