"""The state of a training at the start of a step, kept in a file and put back in place, and how far off a step is.

Parameters are told by their place in their optimizer, which no fix changes; buffers and parameters of other modules
by the module's class and their name in it. Values are copied into the tensors that are there, so that layouts, flat
buffers and captured graphs stay valid. Errors are worked out here, in the process that holds the tensors.
"""

import contextlib
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import load as _load
from torch import save as _save  # before any fix or probe has wrapped it

__all__ = ["Capture", "Tensors", "capture_path", "copy_of", "deviations", "read_capture", "write_capture"]

Tensors = dict[str, torch.Tensor]


class Capture:
    """The trained state of a process: every tensor by its key, and the optimizers' own state."""

    def __init__(self, optimizers: Iterable[Any], modules: Iterable[Any]) -> None:
        """Look up what there is now; the tensors are those of the script, not copies."""
        self._optimizers = list(optimizers)
        self.parameters: Tensors = {}
        self.rest: Tensors = {}  # buffers, and parameters that no optimizer holds
        self.names: dict[str, str] = {}
        pretty: dict[int, str] = {}
        counts: dict[str, int] = {}
        known: set[int] = set()
        held = list(modules)
        for module in held:
            for name, tensor in module.named_parameters():
                pretty.setdefault(id(tensor), name)
        for number, optimizer in enumerate(self._optimizers):
            for place, parameter in enumerate(_parameters(optimizer)):
                if id(parameter) not in known:
                    known.add(id(parameter))
                    key = f"{number}.{place}"
                    self.parameters[key] = parameter
                    self.names[key] = pretty.get(id(parameter), f"parameter {place} of optimizer {number}")
        for module in held:
            kind = type(module).__name__
            counts[kind] = counts.get(kind, -1) + 1
            for name, tensor in (*module.named_parameters(), *module.named_buffers()):
                if id(tensor) not in known and not tensor.is_meta:
                    known.add(id(tensor))
                    key = f"{kind}.{counts[kind]}.{name}"
                    self.rest[key] = tensor
                    self.names[key] = name

    def of(self, optimizer: int) -> Tensors:
        """Return the parameters of one optimizer, in order."""
        return {key: value for key, value in self.parameters.items() if key.startswith(f"{optimizer}.")}

    def num_bytes(self) -> int:
        """Return the size of parameters and buffers."""
        return sum(tensor.nbytes for tensor in (*self.parameters.values(), *self.rest.values()))

    def state(self) -> dict[str, Any]:
        """Return a copy of everything, for `write_capture`."""
        inner = {}
        for number, optimizer in enumerate(self._optimizers):
            places = {id(parameter): place for place, parameter in enumerate(_parameters(optimizer))}
            inner[number] = {
                places[id(key)]: copy_of(value) for key, value in optimizer.state.items() if id(key) in places
            }
        return {"tensors": copy_of({**self.parameters, **self.rest}), "optimizers": inner}

    def put_back(self, state: Mapping[str, Any]) -> None:
        """Copy a state into the tensors that are there."""
        for key, tensor in (*self.parameters.items(), *self.rest.items()):
            saved = state["tensors"].get(key)
            if saved is not None and saved.shape == tensor.shape:
                tensor.data.copy_(saved)
        for number, optimizer in enumerate(self._optimizers):
            parameters = list(_parameters(optimizer))
            for place, values in state["optimizers"].get(number, {}).items():
                own = optimizer.state[parameters[place]]
                for name, value in values.items():
                    _put(own, name, value, parameters[place].device)


def _put(own: Any, name: str, value: Any, device: Any) -> None:
    mine = own.get(name)
    if isinstance(mine, torch.Tensor) and isinstance(value, torch.Tensor) and mine.shape == value.shape:
        mine.data.copy_(value)
    else:
        own[name] = _moved(value, device)


def _moved(value: Any, device: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to(device) if value.dim() else value.clone()
    return [_moved(item, device) for item in value] if isinstance(value, list) else value


def _parameters(optimizer: Any) -> Iterator[Any]:
    for group in optimizer.param_groups:
        yield from group["params"]


def copy_of(value: Any) -> Any:
    """Return a copy of a nest of tensors in main memory, contiguous."""
    if isinstance(value, torch.Tensor):
        dense = value.detach().to_dense() if value.is_sparse else value.detach()
        return dense.to("cpu", copy=True, memory_format=torch.contiguous_format)
    if isinstance(value, Mapping):
        return {key: copy_of(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [copy_of(item) for item in value]
    return value


# -- files ------------------------------------------------------------------------------------------------------


def capture_path(folder: str, rank: int, step: int) -> Path:
    """Return where the capture of one step lies."""
    return Path(folder) / f"rank{rank}-step{step}.pt"


def write_capture(path: Path, body: Mapping[str, Any]) -> None:
    """Write a capture beside its place and then into it.

    Raises:
        OSError: the disk is full, for instance.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    try:
        _save(dict(body), partial)
    except RuntimeError as error:  # torch's way to say that the disk is full
        with contextlib.suppress(OSError):
            partial.unlink()
        raise OSError(str(error)) from error
    partial.replace(path)


def read_capture(path: Path) -> dict[str, Any] | None:
    """Return a capture, None when there is none; nothing in it is executed."""
    if not path.exists():
        return None
    body = _load(path, map_location="cpu", weights_only=True)
    return body if isinstance(body, dict) else None


# -- deviations -------------------------------------------------------------------------------------------------


def deviations(found: Tensors, wanted: Tensors, names: Mapping[str, str]) -> dict[str, Any]:
    """Return how far `found` is off `wanted`, tensor by tensor and all together.

    A row is [name, relative error, cosine, scale, weight, error of all]: `scale` is <found, wanted> / <wanted, wanted>,
    so 1.01 for something 1 % too large whatever else is noise; `weight` the tensor's share of the squared norm of all,
    `error of all` its error relative to the norm of all. A tensor that is not there has error None.
    """
    sums = {key: _sums(found.get(key), truth) for key, truth in wanted.items()}
    there = [one for one in sums.values() if one is not None]
    totals = [math.fsum(one[place] for one in there) for place in range(4)]
    norms = {key: float(truth.double().norm()) ** 2 for key, truth in wanted.items()}
    whole = math.fsum(norms.values()) or 1.0
    rows: list[list[Any]] = []
    for key, one in sums.items():
        name, weight = names.get(key, key), norms[key] / whole
        if one is None:
            rows.append([name, None, 0.0, 0.0, weight, 0.0])
        else:
            rows.append([name, *_measures(*one), weight, math.sqrt(one[3] / whole)])
    extra = [names.get(key, key) for key in found if key not in wanted]
    return {"rows": rows, "all": _measures(*totals), "extra": extra}


def _sums(found: torch.Tensor | None, truth: torch.Tensor) -> tuple[float, float, float, float] | None:
    """Return <f, f>, <t, t>, <f, t> and <f - t, f - t> in double precision; None without a tensor to compare."""
    if found is None or found.shape != truth.shape:
        return None
    mine = found.detach().to_dense() if found.is_sparse else found.detach()
    f, t = mine.to("cpu").double().flatten(), truth.double().flatten()
    return float(f @ f), float(t @ t), float(f @ t), float((f - t) @ (f - t))


def _measures(ff: float, tt: float, ft: float, difference: float) -> list[float]:
    """Return relative error, cosine and scale."""
    if tt == 0:
        return [0.0 if ff == 0 else math.inf, 1.0 if ff == 0 else 0.0, 1.0 if ff == 0 else 0.0]
    cosine = ft / math.sqrt(ff * tt) if ff > 0 else 0.0
    return [math.sqrt(difference / tt), cosine, ft / tt]
