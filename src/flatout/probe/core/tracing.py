"""Whether Dynamo may be tracing: then a seam must only call what it wraps, before it does anything else.

`torch.compiler.is_dynamo_compiling` tells, and Dynamo knows it when it traces; but it is a function of Python, and a
seam is passed up to ten times a step, where each such call costs about 0.5 us (see `event_log`). So it is asked only
once a trace has begun in this process: a seam reads `tracing.possible` first.
"""

import sys
from collections.abc import Callable
from typing import Any

from flatout.probe.core.seams import Hits, Seams

__all__ = ["Tracing"]

_TRACER = "torch._dynamo.symbolic_convert:InstructionTranslator.__init__"  # one is made for each frame that is traced


class Tracing:
    """`possible` is False while it is known that nothing has been traced in this process."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self.possible = True
        self._begun = False

    def watch(self, seams: Seams) -> None:
        """Be told when a trace begins, as soon as Dynamo is there; torch loads it with the first optimizer."""
        if self.possible and not self._begun and "torch._dynamo.symbolic_convert" in sys.modules:
            self.possible = not seams.wrap(_TRACER, self._tracer)

    def leave(self) -> None:
        """Know nothing any more: the seams are undone."""
        self.possible = True

    def _tracer(self, original: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
        def init(translator: Any, *args: Any, **kwargs: Any) -> None:
            hits.count += 1
            self._begun = self.possible = True
            original(translator, *args, **kwargs)

        return init
