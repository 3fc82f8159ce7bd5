"""How DistributedDataParallel exchanges gradients: how often in a step, and how long after they are computed.

It clocks itself (`_get_ddp_logging_data`), every hundredth time unless told otherwise; the deep run tells it to do so
each time. When an exchange ends later than the backward pass has computed, it is exposed for that long. What it says
as a forward pass begins is of the exchange before the last one: it reads its clock in the forward pass.
"""

import contextlib
import statistics
import zlib
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from flatout.probe.core.probe import DeepContext, Probe
from flatout.probe.core.probe_failure import guarded
from flatout.probe.core.user_places import caller
from flatout.probe.loader.loading import tensors_in
from flatout.schema.run import Exchange, Frame, Step

__all__ = ["PROBE", "ExchangeWatch"]

_MOST = 200  # exchanges that are written down one by one
_FROM = 4  # steps: buckets are made anew after the first
_COMPARED, _SAMPLED = 8, 512  # calls whose arguments ranks are compared by, and values of each tensor
_AGAIN = 3  # steps after which what is read is of steps with the script's own settings again
_item = Tensor.item  # before any probe has wrapped it


class ExchangeTimes:
    """What DistributedDataParallel's own clock has said of each exchange."""

    def __init__(self) -> None:
        """Nothing yet."""
        self.exposed_s: dict[str, float] = {}
        self.elements: dict[str, int] = {}
        self._sizes: list[int] = []  # of every call that exchanges
        self._whole_s: list[float] = []
        self._iteration = 0

    def read(self, said: dict[str, Any], *, counts: bool) -> None:
        """Take what it says as a forward pass begins; `counts`: steps had the script's own settings of late."""
        iteration, earlier = int(said["iteration"]), self._iteration
        self._iteration = iteration
        whole_s, overlap_s = said["backward_comm_time"] / 1e9, said["backward_compute_comm_overlap_time"] / 1e9
        if iteration == earlier or whole_s <= 0 or len(self._sizes) < _FROM or not counts:
            return
        self.exposed_s[str(iteration)] = max(0.0, whole_s - overlap_s)
        self.elements[str(iteration)] = self._sizes[-2]
        self._whole_s.append(whole_s)

    def called(self, elements: int) -> None:
        """Take the size of the input of a call that exchanges."""
        self._sizes.append(elements)

    def median_s(self) -> float:
        """Return how long an exchange takes, 0 where that is not known."""
        return statistics.median(self._whole_s) if self._whole_s else 0.0


class ExchangeCounts:
    """How many exchanges steps have, and how many of them were not needed."""

    def __init__(self) -> None:
        """Nothing is counted yet."""
        self.exchanges = self.needless = 0
        self.steps_ns: list[int] = []
        self._of_step = [0, 0]  # exchanges and needless ones since the last step

    def add(self, *, exchanges: bool, needless: bool) -> None:
        """Take one backward pass."""
        self._of_step[1] += needless
        self._of_step[0] += exchanges

    def end_step(self, step: Step, *, counts: bool) -> None:
        """Take a finished step, if it `counts`."""
        (exchanges, needless), self._of_step = self._of_step, [0, 0]
        if counts:
            self.exchanges += exchanges
            self.needless += needless
            self.steps_ns.append(step.wall_ns)


class ExchangeWatch:
    """Follows the one DistributedDataParallel module of a training; of several it says nothing."""

    def __init__(self, trouble: Callable[[Exception], None], optimizers: Callable[[], Iterable[Any]] = tuple) -> None:
        """Follow nothing yet; errors of its own go to `trouble`, and `optimizers` gives those that have made a step."""
        self.trouble = trouble
        self._optimizers = optimizers
        self._module: DistributedDataParallel | None = None
        self._several = False
        self._will_exchange: bool | None = None  # None: no call whose backward pass is still to come
        self._has_exchanged = False
        self._own = _AGAIN  # steps with the script's own settings, in a row
        self._counts = ExchangeCounts()
        self._times = ExchangeTimes()
        self._place: Frame | None = None
        self._contents: list[str] = []

    @guarded
    def called(self, module: Any, arguments: Any) -> None:
        """An outermost module is about to be called."""
        if not isinstance(module, DistributedDataParallel) or not (module.training and torch.is_grad_enabled()):
            return
        if self._module is None:
            self._module = module
            self._place = caller(2)
            with contextlib.suppress(Exception):  # a private method of torch, as the next one
                module._set_ddp_runtime_logging_sample_rate(1)
        self._several = self._several or module is not self._module
        self._will_exchange = bool(module.require_backward_grad_sync)
        if self._will_exchange and len(self._times.exposed_s) < _MOST:
            with contextlib.suppress(Exception):
                self._times.read(module._get_ddp_logging_data(), counts=self._own >= _AGAIN)
            if len(self._contents) < _COMPARED:
                self._contents.append(_digest(arguments))
            self._times.called(sum(tensor.numel() for tensor in tensors_in(list(arguments))))

    @guarded
    def backward(self) -> None:
        """A backward pass is about to begin; an exchange of what it adds to was not needed."""
        if self._will_exchange is None or self._module is None:
            return
        needless = self._has_exchanged and _holds_gradients(self._module, self._optimizers())
        self._counts.add(exchanges=self._will_exchange, needless=needless)
        self._has_exchanged, self._will_exchange = self._will_exchange, None

    @guarded
    def step(self, step: Step, number: int, *, aside: bool = False) -> None:
        """Take one finished step; `aside`: it had another setting than the script's, and its exchanges do not count."""
        self._own = 0 if aside else self._own + 1
        self._counts.end_step(step, counts=self._module is not None and number > _FROM and not aside)

    def facts(self) -> Exchange | None:
        """Return what was seen of the one module."""
        counts, times = self._counts, self._times
        steps = len(counts.steps_ns)
        if self._module is None or self._several or not steps:
            return None
        return Exchange(
            steps=steps,
            exchanges=counts.exchanges / steps,
            needless=counts.needless / steps,
            exposed_s=times.exposed_s,
            elements=times.elements,
            contents=tuple(self._contents),
            exchange_s=times.median_s(),
            step_s=statistics.median(counts.steps_ns) / 1e9,
            place=self._place,
        )


def _digest(arguments: Any) -> str:
    """Return a few digits that differ where tensors of a call have other shapes or values."""
    found = 0
    for tensor in tensors_in(list(arguments)):
        found = zlib.crc32(f"{tuple(tensor.shape)} {tensor.dtype}".encode(), found)
        flat = tensor.detach().reshape(-1)
        some = flat[:: max(1, flat.numel() // _SAMPLED)].cpu().contiguous()
        if some.numel() and not some.is_complex():
            found = zlib.crc32(some.view(torch.uint8).numpy().tobytes(), found)
    return f"{found:08x}"


def _holds_gradients(module: Any, optimizers: Iterable[Any]) -> bool:
    """Return whether the first gradient that an optimizer will read holds more than zeros.

    Parameters that no optimizer has are seldom set to zero: what was added to them is not looked at.
    """
    trained = {id(one) for optimizer in optimizers for group in optimizer.param_groups for one in group["params"]}
    have = [one for one in module.parameters() if one.grad is not None]
    known = any(id(one) in trained for one in module.parameters())
    first = next((one.grad for one in have if id(one) in trained or not known), None)
    return first is not None and bool(_item(first.detach().count_nonzero()))


PROBE: Probe[tuple[ExchangeWatch, DeepContext]] = Probe(
    name="gradient-exchange",
    make=lambda deep: (ExchangeWatch(deep.fail, deep.optimizers), deep),
    called=lambda both, module, arguments: both[0].called(module, arguments),
    backward=lambda both, tensor: both[0].backward(),
    step=lambda both, step, number: both[0].step(step, number, aside=both[1].aside()),
    causes={"exchange": lambda both: both[0].facts()},
)
