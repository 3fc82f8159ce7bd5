"""The floating-point operations of one forward pass, by kind, type and layout, and attention that is not fused.

One call of an outermost module that trains is watched by a dispatch mode, on a device, in a deep run, where nothing is
compiled. Operations are counted by torch's own formulas (`torch.utils.flop_counter.flop_registry`).
"""

import contextlib
import re
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from flatout.probe.core.event_log import EventLog
from flatout.probe.core.probe import Probe
from flatout.probe.core.user_places import caller
from flatout.probe.model.forward_pass import within
from flatout.schema.run import Arithmetic, Frame

__all__ = ["PROBE", "ArithmeticWatch", "Counter"]

_AT_CALL = 3
_LANES = {(8, 0): 64}  # float32 units of a multiprocessor, where they are not 128 (CUDA programming guide, table of
# arithmetic throughput: 64 for 8.0, 128 for 8.6, 8.9, 9.0 and later)
_FROM = (8, 0)  # the first with TF32
_MIXES = re.compile("add|index_add|cat|native_(layer|group|batch)_norm|sum|mean|topk|gather|index")  # no weights then
_ALIGNED = 8  # numbers of 16 bits in 16 bytes


class ArithmeticWatch:
    """Watches one forward pass."""

    def __init__(self, event_log: EventLog) -> None:
        """Watch nothing yet."""
        self._event_log = event_log
        self._calls = 0
        self._counter: Counter | None = None

    def around(self, module: Any, inner: Callable[..., Any]) -> Callable[..., Any]:
        """Return `inner`, or for one call of the training what counts while `inner` runs."""
        self._calls += 1
        on_device = any(one.is_cuda for one in module.parameters()) if self._calls == _AT_CALL else False
        if not on_device or self._counter is not None or self._event_log.tracing.possible:
            return inner
        self._counter = Counter()
        return within(self._counter, inner)

    def facts(self) -> Arithmetic | None:
        """Return what was counted; None without a device or a call."""
        counter = self._counter
        if counter is None or not torch.cuda.is_available():
            return None
        return Arithmetic(
            flops=counter.flops,
            attention_flops=counter.attention_flops,
            attention_at=counter.attention_at,
            float32_flops_s=_float32_flops_s(),
            tf32_possible=torch.cuda.get_device_capability() >= _FROM,
            matmul_precision=_matmul_precision(),
            unaligned_flops=counter.unaligned_flops,
            unaligned_at=counter.unaligned_at,
            unaligned_sizes=counter.unaligned_sizes,
        )


def _float32_flops_s() -> float:
    """Return the most float32 operations a second outside the tensor cores; 0 where the clock is not told."""
    device = torch.cuda.get_device_properties(torch.cuda.current_device())
    lanes = _LANES.get((device.major, device.minor), 128)
    return 2.0 * lanes * device.multi_processor_count * getattr(device, "clock_rate", 0) * 1000


def _matmul_precision() -> str:
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:  # set in the new way: torch then refuses to read the old one
        return "unknown"


class Counter(TorchDispatchMode):
    """Counts operations; follows values from a product to a softmax to a product, through what lies between."""

    def __init__(self) -> None:
        """Count nothing yet."""
        super().__init__()  # type: ignore[no-untyped-call]
        self.flops: dict[str, float] = {}
        self.attention_flops = 0.0
        self.attention_at: Frame | None = None
        self.unaligned_flops = self._largest = 0.0
        self.unaligned_at: Frame | None = None
        self.unaligned_sizes: tuple[int, ...] = ()
        self._scores: dict[int, float] = {}  # storages that hold products, with the operations that made them
        self._weights: dict[int, tuple[float, int]] = {}  # the same behind a softmax, and how many weights there are

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Do the operation, and take it into account."""
        result = func(*args, **(kwargs or {}))
        with contextlib.suppress(Exception):  # a formula that does not know this form of its operation
            self._count(func, args, kwargs or {}, result)
        return result

    def _count(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        count = flop_registry.get(func._overloadpacket)
        made = float(count(*args, **kwargs, out_val=result)) if count is not None else 0.0
        if made:
            kind = _kind(func, args)
            self.flops[kind] = self.flops.get(kind, 0.0) + made
            self._look_at_sizes(kind, args, made)
        first = result[0] if isinstance(result, tuple) and result else result
        if isinstance(first, torch.Tensor):
            self._follow(func, args, first, made)

    def _look_at_sizes(self, kind: str, args: Any, made: float) -> None:
        """Count a product of 16-bit matrices, of one of which a row is no multiple of 16 bytes."""
        if kind not in ("matmul float16", "matmul bfloat16"):
            return
        first, second = [one for one in args if isinstance(one, torch.Tensor)][-2:]
        sizes = (first.shape[-2], first.shape[-1], second.shape[-1])
        if sizes[1] % _ALIGNED == 0 and sizes[2] % _ALIGNED == 0:
            return
        self.unaligned_flops += made
        if made > self._largest:
            self._largest, self.unaligned_sizes, self.unaligned_at = made, sizes, caller(2)

    def _follow(self, func: Any, args: Any, result: torch.Tensor, made: float) -> None:
        inputs = [_storage(one) for one in args if isinstance(one, torch.Tensor)]
        here, name = _storage(result), func._overloadpacket.__name__
        weights = max((self._weights.get(one, (0.0, 0)) for one in inputs), default=(0.0, 0))
        scores = max((self._scores.get(one, 0.0) for one in inputs), default=0.0)
        if here not in inputs:  # the memory of a tensor that is gone
            self._scores.pop(here, None)
            self._weights.pop(here, None)
        if made:
            if weights[0]:
                self.attention_flops += weights[0] + made
                self.attention_at = self.attention_at or caller(2)
            self._scores[here] = made
        elif "softmax" in name and scores:
            self._weights[here] = scores, result.numel()
        elif result.numel() <= weights[1] and not _MIXES.match(name):  # dropped, cast, cut: still the weights
            self._weights[here] = weights[0], result.numel()
        elif scores:
            self._scores[here] = scores


def _storage(tensor: torch.Tensor) -> int:
    try:
        return tensor.untyped_storage().data_ptr()
    except (RuntimeError, NotImplementedError):  # a tensor without memory
        return id(tensor)


def _kind(func: Any, args: Any) -> str:
    """Return `convolution float16 channels-first`, `attention bfloat16`, `matmul float32`."""
    first = next((one for one in args if isinstance(one, torch.Tensor)), None)
    dtype = str(getattr(first, "dtype", "")).removeprefix("torch.")
    name = func._overloadpacket.__name__
    if "conv" in name and first is not None and first.dim() == 4:
        last = first.is_contiguous(memory_format=torch.channels_last) and not first.is_contiguous()
        return f"convolution {dtype} {'channels-last' if last else 'channels-first'}"
    return f"{'convolution' if 'conv' in name else 'attention' if 'attention' in name else 'matmul'} {dtype}"


PROBE = Probe(
    name="operations",
    make=lambda deep: ArithmeticWatch(deep.event_log),
    around=ArithmeticWatch.around,
    causes={"arithmetic": ArithmeticWatch.facts},
)
