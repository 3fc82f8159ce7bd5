"""Whether convolutions meet new shapes while the training runs, and what the steps cost in which they do.

With `torch.backends.cudnn.benchmark`, cuDNN tries its algorithms for each shape that it has not seen.
"""

import statistics
from collections.abc import Callable
from threading import get_ident
from typing import Any

import torch
from torch.compiler import is_dynamo_compiling

from flatout.probe.core.event_log import EventLog
from flatout.probe.core.probe import Probe
from flatout.probe.core.probe_failure import guarded
from flatout.probe.core.seams import Hits, Seams
from flatout.probe.core.spans import BACKWARD, FORWARD, OPTIMIZER, SYNC
from flatout.schema.run import Convolutions, Step

__all__ = ["PROBE", "ConvolutionWatch"]

_FUNCTIONS = ("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
_FROM = 4  # steps: until then every shape is new
_MOST = 4096  # shapes that are remembered


class ConvolutionWatch:
    """Remembers the shapes of every convolution of the training thread."""

    def __init__(self, event_log: EventLog) -> None:
        """Remember nothing yet."""
        self._event_log = event_log
        self.trouble: Callable[[Exception], None] = lambda error: event_log.tracker.trouble(error)
        self._known: set[tuple[Any, ...]] = set()
        self._convolves = self._meets_new = False  # in the step under way
        self._seconds: dict[bool, list[float]] = {True: [], False: []}  # of steps that met a new shape, and of others

    def install(self, seams: Seams) -> None:
        """Wrap torch's functions that convolve."""
        for name in _FUNCTIONS:
            seams.wrap(f"torch.nn.functional:{name}", self._watched)

    def _watched(self, original: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
        event_log, tracing = self._event_log, self._event_log.tracing

        def convolve(*args: Any, **kwargs: Any) -> Any:
            if (tracing.possible and is_dynamo_compiling()) or event_log.fetching or get_ident() != event_log.thread:
                return original(*args, **kwargs)
            hits.count += 1
            self._look(args, kwargs)
            return original(*args, **kwargs)

        return convolve

    @guarded
    def _look(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        given = [one for one in (*args, *kwargs.values()) if isinstance(one, torch.Tensor)]
        key = (given[0].dtype, *(one.shape for one in given[:2]))
        self._convolves = True
        if key not in self._known and len(self._known) < _MOST:
            self._known.add(key)
            self._meets_new = True

    @guarded
    def step(self, step: Step, number: int) -> None:
        """Take one finished step."""
        if self._convolves and number > _FROM:
            spent_ns = sum(step.phases_ns[phase] for phase in (FORWARD, BACKWARD, OPTIMIZER, SYNC))
            self._seconds[self._meets_new].append(spent_ns / 1e9)
        self._convolves = self._meets_new = False

    def facts(self) -> Convolutions | None:
        """Return what was seen; None where nothing convolves."""
        new, known = self._seconds[True], self._seconds[False]
        if not new and not known:
            return None
        return Convolutions(
            search=_search(),
            steps=len(new) + len(known),
            new_steps=len(new),
            new_s=statistics.median(new) if new else 0.0,
            known_s=statistics.median(known) if known else 0.0,
        )


def _search() -> str:
    if torch.backends.cudnn.deterministic or torch.are_deterministic_algorithms_enabled():
        return "deterministic"
    return "on" if torch.backends.cudnn.benchmark else "off"


PROBE = Probe(
    name="convolutions",
    make=lambda deep: ConvolutionWatch(deep.event_log),
    install=ConvolutionWatch.install,
    step=ConvolutionWatch.step,
    causes={"convolutions": ConvolutionWatch.facts},
)
