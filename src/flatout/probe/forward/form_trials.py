"""Two ways to come to one result, timed on other numbers of the same shapes: as a script has it, and another one."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import torch

__all__ = ["FormTrial", "TimedForms", "convolution", "differences", "enlargement", "timed"]

_PASSES, _LEAST, _LONGEST_S = 7, 3, 1.5
_PRIMES = (2, 3, 5)

_Form = Callable[..., torch.Tensor]


@dataclass(frozen=True, slots=True)
class FormTrial:
    """What is to be timed.

    Attributes:
        shapes: of the tensors that both forms are given.
        learns: which of them ask for gradients.
        others: what comes to the same, with the words for it.
        picked: only indices come out of it: no gradient is asked for.
    """

    shapes: tuple[tuple[int, ...], ...]
    learns: tuple[bool, ...]
    dtype: torch.dtype
    written: _Form
    others: tuple[tuple[str, _Form], ...]
    picked: bool = False


@dataclass(frozen=True, slots=True)
class TimedForms:
    """The shortest of passes in turn: forward alone as it is written, then with the backward pass in both ways."""

    instead: str
    n: int
    forward_s: float
    alone_s: float
    other_s: float


def timed(trial: FormTrial) -> TimedForms | None:
    """Return what the forms take, the other one being the fastest of those that come to the same; None if none does."""
    draw = torch.Generator().manual_seed(0)
    given = [torch.rand(shape, generator=draw, dtype=trial.dtype).sub_(0.5) for shape in trial.shapes]
    with torch.no_grad():
        expected = trial.written(*given)
        fitting = [other for other in trial.others if _is_near(other[1](*given), expected)]
    if not fitting:
        return None
    for tensor, learns in zip(given, trial.learns, strict=True):
        tensor.requires_grad_(learns)
    backward = any(trial.learns) and not trial.picked
    forms = [("", trial.written), *fitting]
    for _, form in forms:
        _pass_s(form, given, backward, True)
    taken: list[list[tuple[float, float]]] = [[] for _ in forms]
    begin = perf_counter()
    while len(taken[-1]) < _PASSES and (len(taken[-1]) < _LEAST or perf_counter() - begin < _LONGEST_S):
        for number, (_, form) in enumerate(forms):
            taken[number].append(_pass_s(form, given, backward, number == 0 or not trial.picked))
    least = [min(whole for _, whole in passes) for passes in taken]
    best = min(range(1, len(forms)), key=lambda number: least[number])
    forward_s = min(forward for forward, _ in taken[0])
    return TimedForms(forms[best][0], len(taken[0]), forward_s, least[0], least[best])


def _pass_s(form: _Form, given: Sequence[torch.Tensor], backward: bool, recorded: bool) -> tuple[float, float]:
    """Return the seconds of a forward pass, and of that and its backward pass."""
    begin = perf_counter()
    with torch.set_grad_enabled(recorded):
        result = form(*given)
    forward_s = perf_counter() - begin
    if backward:
        leaves = tuple(tensor for tensor in given if tensor.requires_grad)
        ones = torch.ones_like(result)
        begin = perf_counter()
        engine: Any = torch.autograd.Variable._execution_engine  # past whoever watches `backward()`
        engine.run_backward((result,), (ones,), False, False, leaves, True, False)
        return forward_s, forward_s + perf_counter() - begin
    return forward_s, forward_s


def _is_near(one: torch.Tensor, other: torch.Tensor) -> bool:
    least = 1e-3 * float(other.abs().max())
    return one.shape == other.shape and torch.allclose(one, other, rtol=1e-3, atol=least)


# -- long kernels -------------------------------------------------------------------------------------------------


def convolution(x: Any, weight: Any, bias: Any, stride: Any, padding: Any, groups: int, learns: Any) -> FormTrial:
    """Return the trial of a convolution against one by Fourier transforms."""
    shapes = (tuple(x.shape), tuple(weight.shape), *((tuple(bias.shape),) if bias is not None else ()))
    stride, padding = tuple(stride), tuple(padding)
    dims = weight.dim() - 2
    strides, paddings = (stride * dims)[:dims], (padding * dims)[:dims]

    def written(x: Any, weight: Any, bias: Any = None) -> torch.Tensor:
        zeros = [0] * dims
        one = [1] * dims
        result: torch.Tensor = torch.ops.aten.convolution(x, weight, bias, strides, paddings, one, False, zeros, groups)
        return result

    def by_transforms(x: Any, weight: Any, bias: Any = None) -> torch.Tensor:
        return _by_transforms(x, weight, bias, strides, paddings, groups)

    transform = "rfft" if dims == 1 else f"rfft{dims}" if dims == 2 else "rfftn"
    words = f"`torch.fft.i{transform}({transform}(x, n) * {transform}(w, n).conj(), n)`, n being the padded length,"
    return FormTrial(shapes, tuple(learns), x.dtype, written, ((words, by_transforms),))


def _by_transforms(x: Any, weight: Any, bias: Any, strides: Any, paddings: Any, groups: int) -> torch.Tensor:
    dims = weight.dim() - 2
    around = [pad for padding in reversed(paddings) for pad in (padding, padding)]
    x = torch.ops.aten.constant_pad_nd(x, around) if any(around) else x
    sizes, axes = x.shape[2:], tuple(range(-dims, 0))
    length = [_smooth(size) for size in sizes]
    left = torch.fft.rfftn(x, length, axes).reshape(len(x), groups, -1, *_halved(length))
    right = torch.fft.rfftn(weight, length, axes).conj()
    right = right.reshape(groups, -1, weight.shape[1], *_halved(length))
    if weight.shape[1] == 1:
        product = left * right[:, :, 0]
    else:
        product = torch.einsum("ngcf,gocf->ngof", left.flatten(3), right.flatten(3))
    spectrum = product.reshape(len(x), -1, *_halved(length))
    result: torch.Tensor = torch.fft.irfftn(spectrum, length, axes)
    kept: tuple[Any, ...] = tuple(
        slice(0, size - taps + 1, step) for size, taps, step in zip(sizes, weight.shape[2:], strides, strict=True)
    )
    result = result[(Ellipsis, *kept)]
    return result if bias is None else torch.add(result, bias.reshape(-1, *[1] * dims))


def _halved(length: list[int]) -> tuple[int, ...]:
    return (*length[:-1], length[-1] // 2 + 1)


def _smooth(least: int) -> int:
    """Return the first number from `least` on that is made of small primes: transforms of that length are fast."""
    number = least
    while True:
        rest = number
        for prime in _PRIMES:
            while rest % prime == 0:
                rest //= prime
        if rest == 1:
            return number
        number += 1


# -- distances ----------------------------------------------------------------------------------------------------


def differences(batch: int, rows: tuple[int, int], width: int, power: str, learns: Any, **detail: Any) -> FormTrial:
    """Return the trial of distances from all differences; `power` is "square", "abs" or "norm"."""
    others: dict[str, tuple[tuple[str, _Form], ...]] = {
        "square": (
            ("`x.square().sum(-1, True) + y.square().sum(-1).unsqueeze(-2) - 2 * x @ y.mT`", _by_product),
            ("`torch.cdist(x, y).square()`", lambda x, y: torch.cdist(x, y).square()),
        ),
        "abs": (("`torch.cdist(x, y, p=1)`", lambda x, y: torch.cdist(x, y, p=1.0)),),
        "norm": (("`torch.cdist(x, y)`", torch.cdist),),
    }
    shapes = ((batch, rows[0], width), (batch, rows[1], width))
    return FormTrial(shapes, tuple(learns), detail["dtype"], _WRITTEN[power], others[power], detail["picked"])


def _by_product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x.square().sum(-1, keepdim=True) + y.square().sum(-1).unsqueeze(-2) - 2 * x @ y.mT


_WRITTEN: dict[str, _Form] = {
    "square": lambda x, y: (x.unsqueeze(-2) - y.unsqueeze(-3)).pow(2).sum(-1),
    "abs": lambda x, y: (x.unsqueeze(-2) - y.unsqueeze(-3)).abs().sum(-1),
    "norm": lambda x, y: (x.unsqueeze(-2) - y.unsqueeze(-3)).norm(dim=-1),
}


# -- enlarged, and only then mixed ---------------------------------------------------------------------------------


def enlargement(x: Any, enlarge: _Form, weight: Any, bias: Any, learns: Any) -> FormTrial:
    """Return the trial of a convolution of single points after and before `enlarge`."""
    shapes = (tuple(x.shape), tuple(weight.shape), *((tuple(bias.shape),) if bias is not None else ()))
    dims = weight.dim() - 2
    rest = ([1] * dims, [0] * dims, [1] * dims, False, [0] * dims, 1)

    def mix(x: Any, weight: Any, bias: Any = None) -> torch.Tensor:
        result: torch.Tensor = torch.ops.aten.convolution(x, weight, bias, *rest)
        return result

    def before(x: Any, *given: Any) -> torch.Tensor:
        return enlarge(mix(x, *given))

    def after(x: Any, *given: Any) -> torch.Tensor:
        return mix(enlarge(x), *given)

    return FormTrial(shapes, tuple(learns), x.dtype, after, (("the convolution first, then the enlargement,", before),))
