"""Outputs of a module, kept by the contents of the rows that it was given.

Rows are told apart by 128 bits of BLAKE2. A row counts together with the form of the batch that it stood in: number of
rows, types, shapes, strides, and whatever of the arguments is no row. So a batch from memory is made of rows that were
computed in batches of its own size.
"""

import hashlib
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from flatout.kept.kept_result import Unkeepable

__all__ = ["Fits", "RowOutputs", "RowsGiven", "mixed", "rows_given", "tensors_of"]

_DIGEST = 16  # bytes
_DEPTH = 4
_ALIGNED = 64
_PLAIN = (bool, int, float, complex, str, bytes, type(None))


Fits = Callable[[int, object], bool]
"""Whether so many bytes more may be taken by an owner, who gives them back as he ends."""


class RowsGiven(NamedTuple):
    """What a module is given: the form of its batch, and the digest of each row."""

    form: tuple[object, ...]
    keys: list[bytes]


def rows_given(args: Any, kwargs: Any) -> RowsGiven | None:
    """Return the rows of a call; None where something in it cannot be told by its contents."""
    leaves: list[Any] = []
    form: list[object] = []
    if not _leaves((args, kwargs), leaves, form, _DEPTH):
        return None
    number = next((len(one) for one in leaves if one.dim()), 0)
    parts = [one for one in leaves if _is_of_rows(one, number)]
    if not parts or any(one.requires_grad for one in leaves):
        return None
    hashes = [hashlib.blake2b(digest_size=_DIGEST) for _ in range(number)]
    for one in leaves:
        form += [one.dtype, one.shape, one.stride(), one.data_ptr() % _ALIGNED]
        if not _is_of_rows(one, number):
            form.append(hashlib.blake2b(_bytes(one, 1)[0], digest_size=_DIGEST).digest())
            continue
        for known, row in zip(hashes, _bytes(one, number), strict=True):
            known.update(row)
    return RowsGiven((number, *form), [one.digest() for one in hashes])


def _leaves(value: Any, leaves: list[Any], form: list[object], depth: int) -> bool:
    kind = type(value)
    if kind in _PLAIN:
        form += [kind, repr(value)]
        return True
    if kind is torch.Tensor:
        odd = value.layout is not torch.strided or value.device.type != "cpu" or value.is_quantized
        leaves.append(value)
        return not (odd or value.is_conj() or value.is_neg() or value.is_inference() or vars(value))
    if kind not in (list, tuple, dict) or not depth:
        return False
    form += [kind, len(value), *(map(repr, value) if kind is dict else ())]
    return all(_leaves(each, leaves, form, depth - 1) for each in (value.values() if kind is dict else value))


def _is_of_rows(tensor: Any, number: int) -> bool:
    return tensor.dim() > 0 and len(tensor) == number and tensor.numel() > 0


def _bytes(tensor: Any, number: int) -> Any:
    """Return the bytes of a tensor in `number` rows; one of no numbers has none."""
    flat = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
    return flat.reshape(number, flat.numel() // number).numpy()


def mixed(value: Any, other: Any, number: int) -> Any:
    """Return arguments with every second row of `other`, all of them in other places, in tensors of the same form."""
    kind = type(value)
    if kind is torch.Tensor and _is_of_rows(value, number):
        rows = torch.stack([(other if at % 2 else value)[place] for at, place in enumerate(places(number))])
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype).copy_(rows)
    if kind in (list, tuple):
        return kind(mixed(one, two, number) for one, two in zip(value, other, strict=True))
    if kind is dict:
        return {key: mixed(one, other[key], number) for key, one in value.items()}
    return value


def places(number: int) -> list[int]:
    """Return another order of so many rows: the last first."""
    return list(range(number))[::-1]


class RowOutputs:
    """The outputs of one module in one state."""

    def __init__(self, fits: Fits) -> None:
        """Hold nothing yet."""
        self.num_bytes = 0
        self._fits = fits
        self._forms: dict[object, tuple[Any, list[tuple[Any, ...]]]] = {}
        self._where: dict[tuple[object, bytes], tuple[list[Any], int]] = {}
        self._batches: dict[tuple[object, bytes], list[Any]] = {}

    def add(self, given: RowsGiven, outputs: Any, held: set[int], *, whole: bool) -> bool:
        """Keep what a module returned for a batch; return whether there was room.

        `held`: addresses of its inputs and weights. `whole`: the batch is kept as it is, too, whatever of its rows is
        known.

        Raises:
            Unkeepable: it is of a kind that is never kept.
        """
        number = len(given.keys)
        tensors = tensors_of(outputs)
        shape = [(one.shape, one.stride(), one.dtype) for one in tensors]
        if self._forms.setdefault(given.form, (_skeleton(outputs), shape)) != (_skeleton(outputs), shape):
            raise Unkeepable("the form of its output depends on more than that of its input")
        _check(tensors, number, held)
        new = [at for at, key in enumerate(given.keys) if whole or (given.form, key) not in self._where]
        if not new:
            return True
        size = sum(one.nbytes for one in tensors) * len(new) // number
        if not self._fits(size, self):
            return False
        self.num_bytes += size
        block = [one.detach()[new].clone() for one in tensors]  # contiguous rows
        for place, at in enumerate(new):
            self._where.setdefault((given.form, given.keys[at]), (block, place))
        if whole:
            self._batches[given.form, b"".join(given.keys)] = block
        return True

    def knows(self, given: RowsGiven) -> bool:
        """Return whether every row of a batch is known."""
        return all((given.form, key) in self._where for key in given.keys)

    def knows_whole(self, given: RowsGiven) -> bool:
        """Return whether this very batch is known."""
        return (given.form, b"".join(given.keys)) in self._batches

    def make(self, given: RowsGiven) -> Any:
        """Return the outputs for a batch that is known, or of known rows, in fresh memory of the form that they had."""
        skeleton, shapes = self._forms[given.form]
        block = self._batches.get((given.form, b"".join(given.keys)))
        rows = [] if block is not None else [self._where[given.form, key] for key in given.keys]
        made = []
        with torch.no_grad():
            for number, (shape, stride, dtype) in enumerate(shapes):
                whole = torch.empty_strided(shape, stride, dtype=dtype)
                if block is not None:
                    made.append(whole.copy_(block[number]))
                    continue
                parts = [one[number][place] for one, place in rows]
                made.append(torch.stack(parts, out=whole) if whole.is_contiguous() else whole.copy_(torch.stack(parts)))
        return _built(skeleton, iter(made))


def tensors_of(value: Any) -> list[Any]:
    """Return the tensors in what a module returned.

    Raises:
        Unkeepable: something else is in it.
    """
    kind = type(value)
    if kind is torch.Tensor:
        return [value]
    if kind in (list, tuple, dict):
        return [one for each in (value.values() if kind is dict else value) for one in tensors_of(each)]
    raise Unkeepable(f"it returns an object of {kind.__name__}")


def _skeleton(value: Any) -> Any:
    kind = type(value)
    if kind in (list, tuple):
        return (kind, *map(_skeleton, value))
    return (kind, *((key, _skeleton(each)) for key, each in value.items())) if kind is dict else None


def _built(skeleton: Any, tensors: Any) -> Any:
    if skeleton is None:
        return next(tensors)
    kind, *inner = skeleton
    if kind is dict:
        return {key: _built(each, tensors) for key, each in inner}
    return kind(_built(each, tensors) for each in inner)


def _check(tensors: list[Any], number: int, held: set[int]) -> None:
    """Refuse what has no rows, or shares its memory.

    Raises:
        Unkeepable: saying which of these.
    """
    held = set(held)
    for one in tensors:
        if one.requires_grad or one.is_inference() or vars(one):
            raise Unkeepable("its output has gradients, or was made in inference mode")
        if one.layout is not torch.strided or one.device.type != "cpu" or one.is_quantized or one.is_conj():
            raise Unkeepable("it returns a tensor of a kind that is not kept")
        if not one.dim() or len(one) != number or not one.numel():
            raise Unkeepable("its output has no row for each row of its input")
        overlaps = any(step == 0 and size > 1 for size, step in zip(one.shape, one.stride(), strict=True))
        address = one.untyped_storage().data_ptr()
        if address in held or overlaps or one.data_ptr() % _ALIGNED:
            raise Unkeepable("its output shares memory with something else")
        held.add(address)
