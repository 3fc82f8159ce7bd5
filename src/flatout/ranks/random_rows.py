"""Random numbers of a rank's rows: those that one process draws for them.

Inside of a cut call each rank draws for the whole batch and takes its rows, so that dropout masks and noise are those
of one process, and the streams of random numbers stay alike on all ranks. What draws in other ways is found where calls
are tried on copies: the streams then end in different states.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from flatout.probe.core.seams import Hits, Seams
from flatout.ranks.local_rows import HERE, OwnRows

__all__ = ["LeftWhole", "draw_whole_batches"]

_IN_PLACE = ("bernoulli_", "normal_", "uniform_", "exponential_", "log_normal_", "cauchy_", "geometric_", "random_")
_BY_SIZE = ("rand", "randn")
_LIKE = ("rand_like", "randn_like", "randint_like")
_FEATURES = ("dropout1d", "dropout2d", "dropout3d")
_BY_NUMBERS = ("alpha_dropout", "feature_alpha_dropout")

_Tensor = torch.Tensor


class LeftWhole(Exception):
    """A call that cannot be cut; the text says why."""


def draw_whole_batches(seams: Seams) -> None:
    """Let what draws random numbers do so for the whole batch inside of cut calls."""
    seams.wrap("torch.nn.functional:dropout", _of(_dropout))
    for name in _FEATURES:
        seams.wrap(f"torch.nn.functional:{name}", _of(_feature_dropout))
    for name in _BY_NUMBERS:
        seams.wrap(f"torch.nn.functional:{name}", _refused(name))
    seams.wrap("torch.nn.functional:scaled_dot_product_attention", _attention)
    for name in _IN_PLACE:
        seams.wrap(f"torch:Tensor.{name}", _of(_in_place))
    for name in _LIKE:
        seams.wrap(f"torch:{name}", _of(_like))
    for name in _BY_SIZE:
        seams.wrap(f"torch:{name}", _of(_by_size))


_Draw = Callable[..., Any]


def _of(act: Callable[..., Any]) -> Callable[[_Draw, Hits], _Draw]:
    """Return what makes the replacement of a function that acts as `act` inside of cut calls."""

    def make(original: _Draw, hits: Hits) -> _Draw:
        def draw(*args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling() or HERE.rows is None:
                return original(*args, **kwargs)
            rows = HERE.own()
            if rows is None:
                return original(*args, **kwargs)
            hits.count += 1
            return act(original, rows, *args, **kwargs)

        return draw

    return make


def whole_shape(shape: Sequence[int], rows: OwnRows) -> tuple[list[int], int, int] | None:
    """Return the shape for all rows of what has `shape` for this rank's, the dimension, and its entries for a row.

    None where no dimension goes with the rows: then every rank draws the same. A number can be a multiple of the rows
    by chance, so what the trial on copies has found for such a shape is right for all later calls.

    Raises:
        LeftWhole: it went with the rows in that trial, and cannot any more.
    """
    HERE.asked += 1
    places = tuple(dict.fromkeys((rows.dim, 0)))
    at = next((at for at in places if len(shape) > at and shape[at] and shape[at] % rows.number == 0), None)
    form = len(shape), tuple(one for number, one in enumerate(shape) if number not in places)
    if not rows.draws.setdefault(form, at is not None):
        return None
    if at is None:
        raise LeftWhole(f"random numbers of shape {list(shape)} for {rows.number} of {rows.total} rows")
    each = shape[at] // rows.number
    return [*shape[:at], each * rows.total, *shape[at + 1 :]], at, each


def _drawn(like: _Tensor, rows: OwnRows, draw: Callable[[_Tensor], Any], shape: Sequence[int] | None = None) -> _Tensor:
    """Return this rank's rows of what `draw` fills a tensor of the whole batch with; it lies in memory as `like`."""
    found = whole_shape(like.shape if shape is None else shape, rows)
    if found is None:
        own = torch.empty_like(like) if shape is None else like.new_empty(shape)
        draw(own)
        return own
    size, at, each = found
    order = _order(like) if shape is None else list(range(len(size)))
    whole = torch.empty_permuted(size, order, dtype=like.dtype, device=like.device)
    draw(whole)
    return whole.narrow(at, each * rows.first, each * rows.number)


def _order(like: _Tensor) -> list[int]:
    """Return the order of dimensions in memory, of `empty_like`: that of a tensor without gaps, else the usual one."""
    strides = like.stride()
    order = sorted(range(like.dim()), key=lambda at: (-strides[at], at))
    packed = like.permute(order).is_contiguous()
    return order if packed else list(range(like.dim()))


# -- the functions --------------------------------------------------------------------------------------------------


def _dropout(
    original: _Draw, rows: OwnRows, input: _Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Any:
    if not training or not 0 < p < 1 or input.is_cuda:
        if training and 0 < p < 1:
            raise LeftWhole("dropout on a device draws its mask in one operation with the product")
        return original(input, p, training, inplace)
    noise = _drawn(input, rows, lambda whole: _bernoulli(whole, 1 - p)).div(1 - p)
    return input.mul_(noise) if inplace else input * noise


def _feature_dropout(
    original: _Draw, rows: OwnRows, input: _Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Any:
    if not training or not 0 < p < 1:
        return original(input, p, training, inplace)
    shape = [*input.shape[:2], *[1] * (input.dim() - 2)]
    noise = _drawn(input, rows, lambda whole: _bernoulli(whole, 1 - p), shape).div(1 - p)
    return input.mul_(noise) if inplace else input * noise


def _bernoulli(whole: _Tensor, p: float) -> None:
    rows, HERE.rows = HERE.rows, None
    try:
        whole.bernoulli_(p)
    finally:
        HERE.rows = rows


def _in_place(original: _Draw, rows: OwnRows, own: _Tensor, *args: Any, **kwargs: Any) -> Any:
    if own.numel() == 0 or any(isinstance(one, torch.Tensor) for one in args):
        return original(own, *args, **kwargs)
    with torch.no_grad():
        return own.copy_(_drawn(own.detach(), rows, lambda whole: original(whole, *args, **kwargs)))


def _like(original: _Draw, rows: OwnRows, input: _Tensor, *args: Any, **kwargs: Any) -> Any:
    gradient = kwargs.pop("requires_grad", False)
    found = whole_shape(input.shape, rows)
    if found is None:
        return original(input, *args, requires_grad=gradient, **kwargs)
    size, at, each = found
    whole = torch.empty_permuted(size, _order(input), dtype=input.dtype, device=input.device)
    own = original(whole, *args, **kwargs).narrow(at, each * rows.first, each * rows.number)
    return own.clone(memory_format=torch.preserve_format).requires_grad_(gradient)


def _by_size(original: _Draw, rows: OwnRows, *size: Any, **kwargs: Any) -> Any:
    gradient = kwargs.pop("requires_grad", False)
    shape = kwargs.pop("size", None)
    if shape is None:
        shape = size[0] if len(size) == 1 and not isinstance(size[0], int) else size
    found = whole_shape(shape, rows)
    if found is None or kwargs.get("out") is not None:
        return original(shape, requires_grad=gradient, **kwargs)
    whole, at, each = found
    own = original(whole, **kwargs).narrow(at, each * rows.first, each * rows.number)
    return own.clone().requires_grad_(gradient)


def _attention(original: _Draw, hits: Hits) -> _Draw:
    def attention(*args: Any, **kwargs: Any) -> Any:
        if not torch.compiler.is_compiling() and HERE.rows is not None and HERE.own() is not None:
            hits.count += 1
            if kwargs.get("dropout_p", args[4] if len(args) > 4 else 0.0):
                raise LeftWhole("dropout inside of scaled_dot_product_attention")
        return original(*args, **kwargs)

    return attention


def _refused(name: str) -> Callable[[_Draw, Hits], _Draw]:
    def make(original: _Draw, hits: Hits) -> _Draw:
        def draw(input: Any, p: float = 0.5, training: bool = False, inplace: bool = False) -> Any:
            if (
                training
                and p
                and not torch.compiler.is_compiling()
                and HERE.rows is not None
                and HERE.own() is not None
            ):
                raise LeftWhole(f"{name} in training")
            return original(input, p, training, inplace)

        return draw

    return make
