"""Captured steps: the baseline writes them down, every other execution goes through them from the same state.

One step from the same state says what a trajectory cannot: after a hundred steps a difference in the last place of one
weight is legitimately large, after one step it is not.
"""

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

import torch

from flatout.probe.verify.capture import (
    Capture,
    Tensors,
    capture_path,
    copy_of,
    deviations,
    read_capture,
    write_capture,
)
from flatout.schema.order import VerifyOrder

__all__ = ["CapturedSteps", "Replay", "gradients", "nudge"]

_FEWER = ((2 * 2**20, (0, 3, 12)), (512 * 2**20, (0, 12)))  # bytes of parameters and buffers: steps beyond them

_TF32 = 2.0**-11  # half of one unit in the last place: the mantissa has 10 bits (NVIDIA A100 whitepaper)

Write = Callable[[str, Mapping[str, object]], None]


def gradients(parameters: Tensors) -> Tensors:
    """Return the gradients that there are, sparse ones as dense tensors."""
    found = {key: one.grad for key, one in parameters.items() if one.grad is not None}
    return {key: one.to_dense() if one.is_sparse else one for key, one in found.items()}


class CapturedSteps:
    """The baseline's part: state at the start, gradients before the optimizer acts, parameters and buffers after."""

    def __init__(self, order: VerifyOrder, rank: int, write: Write) -> None:
        """Capture nothing yet."""
        self._folder, self._rank, self._write = order.captures, rank, write
        self._wanted = set(order.at)
        self._open: dict[str, Any] | None = None
        self._failed = False

    def wants(self, step: int) -> bool:
        """Return whether `step` is to be captured."""
        return step in self._wanted and not self._failed

    def begin(self, step: int, capture: Capture) -> None:
        """The optimizer step before `step` has ended: take the state if `step` is wanted."""
        self._open = None
        for size, steps in _FEWER:
            if step == 0 and capture.num_bytes() > size:
                self._wanted &= set(steps)
        if self.wants(step):
            self._open = {"state": capture.state() if step else {}}

    def before_step(self, step: int, capture: Capture, optimizer: int, events: Mapping[str, list[Any]]) -> None:
        """The optimizer is about to act: take the gradients; a step whose backward pass came earlier is no use."""
        if step == 0:
            self.begin(0, capture)
        if self._open is None:
            return
        if step and not events.get("losses"):
            self._wanted.add(step + 1)
            self._open = None
            return
        mine = capture.of(optimizer)
        names = {key: capture.names[key] for key in (*mine, *capture.rest)}
        self._open |= {"optimizer": optimizer, "grads": copy_of(gradients(mine)), "before": copy_of(mine)}
        self._open |= {"losses": list(events.get("losses", ())), "names": names}

    def after_step(self, step: int, capture: Capture, optimizer: int) -> None:
        """The optimizer has acted: write the capture."""
        if self._open is None or "grads" not in self._open:
            return
        self._open["after"] = copy_of(capture.of(optimizer))
        self._open["rest"] = copy_of(capture.rest)
        try:
            write_capture(capture_path(self._folder, self._rank, step), self._open)
            self._write("captured", {"step": step, "bytes": capture.num_bytes()})
        except OSError as error:
            self._failed = True
            self._write("trouble", {"text": f"step {step} could not be captured: {error}"})
        self._open = None


class Replay:
    """What an execution other than the baseline does at a captured step."""

    def __init__(self, order: VerifyOrder, rank: int, write: Write) -> None:
        """Replay nothing yet."""
        self._order, self._rank, self._write = order, rank, write
        self._body: dict[str, Any] | None = None
        self._before: Tensors = {}
        self._record: dict[str, Any] = {}
        paths = {step: capture_path(order.captures, rank, step) for step in range(max(order.at, default=0) + 16)}
        self.steps = {step for step, path in paths.items() if order.replay and path.exists()}

    def wants(self, step: int) -> bool:
        """Return whether there is a capture of `step`."""
        return step in self.steps

    def begin(self, step: int, capture: Capture) -> bool:
        """Put the captured state of `step` back, if there is one; return whether there is."""
        self._body = None
        path = capture_path(self._order.captures, self._rank, step)
        with contextlib.suppress(OSError, RuntimeError, ValueError):
            self._body = read_capture(path)
        if self._body is not None and step:
            capture.put_back(self._body["state"])
        return self._body is not None

    def before_step(self, step: int, capture: Capture, optimizer: int, events: Mapping[str, list[Any]]) -> None:
        """Compare the gradients that the optimizer is about to use."""
        if step == 0:
            self.begin(0, capture)
        if self._body is None:
            return
        mine = capture.of(optimizer)
        found = gradients(mine)
        names = self._body["names"]
        self._record = {"step": step, "optimizer": [optimizer, self._body["optimizer"]]}
        self._record["gradients"] = deviations(found, self._body["grads"], names)
        self._record["not_finite"] = _not_finite(found, names)
        self._record["losses"] = [list(events.get("losses", ())), self._body["losses"]]
        if self._order.references:
            reference = read_capture(capture_path(self._order.references, self._rank, step))
            if reference is not None:
                self._record["against_reference"] = deviations(found, reference["grads"], names)
        if step == 0:
            self._record["start"] = deviations(mine, self._body["before"], names)
        self._before = copy_of(mine)

    def after_step(self, step: int, capture: Capture, optimizer: int) -> None:
        """Compare what the optimizer and the forward passes have changed."""
        body, self._body = self._body, None
        if body is None or not self._record:
            return
        after = copy_of(capture.of(optimizer))
        updates = {key: after[key].double() - self._before[key].double() for key in after if key in self._before}
        wanted = {key: body["after"][key].double() - body["before"][key].double() for key in body["after"]}
        self._record["updates"] = deviations(updates, wanted, body["names"])
        self._record["buffers"] = deviations(capture.rest, body["rest"], body["names"])
        self._write("replay", self._record)
        self._record, self._before = {}, {}


def _not_finite(tensors: Tensors, names: Mapping[str, str]) -> list[str]:
    return [names.get(key, key) for key, one in tensors.items() if not bool(torch.isfinite(one).all())][:8]


def nudge(tensors: Tensors, share: float, seed: int) -> None:
    """Move every weight up or down, at random: by `share` of itself, or by as much as one rounding of it.

    That is one unit in the last place, or, where the device rounds weights to TF32 before it multiplies, half of one
    of TF32. The random numbers are drawn apart, so that the script's own stay as they are.
    """
    generator = torch.Generator().manual_seed(seed)
    for one in tensors.values():
        if not one.is_floating_point() or not one.requires_grad:
            continue
        signs = torch.randint(0, 2, one.shape, generator=generator, dtype=torch.int8).to(one.device, one.dtype) * 2 - 1
        moved = share or _rounding(one)
        if moved:
            one.data.mul_(1 + signs * moved)
        elif one.dtype in (torch.float32, torch.float64):
            one.data.copy_(torch.nextafter(one.data, signs * torch.inf))
        else:
            one.data.mul_(1 + signs * torch.finfo(one.dtype).eps)


def _rounding(weight: Any) -> float:
    """Return what products round a weight by, relative, beyond its own type: 0.0 where that is all."""
    if weight.device.type != "cuda" or weight.dtype is not torch.float32 or weight.dim() < 2:
        return 0.0
    convolves = weight.dim() > 2
    backend: Any = torch.backends.cudnn if convolves else torch.backends.cuda.matmul
    setting: Any = getattr(backend, "conv", None) if convolves else backend
    precision = getattr(setting, "fp32_precision", None)  # torch 2.9 and later
    in_tf32 = precision == "tf32" if precision is not None else backend.allow_tf32
    return _TF32 if in_tf32 and torch.cuda.get_device_capability(weight.device) >= (8, 0) else 0.0
