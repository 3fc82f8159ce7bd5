"""Operations that a device leaves to the CPU: torch says so in a warning.

On MPS with `PYTORCH_ENABLE_MPS_FALLBACK=1` (torch, `aten/src/ATen/mps/MPSFallback.mm`), some of them in any case; other
devices that come with a package of their own use the same words. XPU names no operation (`XPUFallback.template`). It is
said once in a process, whichever operation it was; on such devices torch is asked to say it each time, of which Python
shows once what is the same at the same line.
"""

import re
from collections.abc import Callable
from typing import Any

import torch

from flatout.probe.core.probe import Probe
from flatout.probe.core.seams import Hits, Seams
from flatout.probe.core.user_places import caller
from flatout.schema.run import Fallback

__all__ = ["PROBE", "FallbackWatch"]

_SAYS = (
    re.compile(
        r"operator '(?P<operation>[^']+)' is not currently supported on the (?P<device>\S+) backend and will fall"
    ),
    re.compile(r"(?P<operation>\b)fallback from (?P<device>\S+) to CPU"),
)
_MOST = 32


class FallbackWatch:
    """Listens to warnings while the script runs; each is shown or kept back as it would be without."""

    def __init__(self, trouble: Callable[[Exception], None]) -> None:
        """Hear nothing yet; `trouble` is handed an error of ours."""
        self._trouble = trouble
        self._found: list[Fallback] = []
        self._always = False

    def install(self, seams: Seams) -> None:
        """Listen where both the interpreter and torch's C++ hand over a warning that is to be shown."""
        seams.wrap("warnings:_showwarnmsg", self._heard)
        if _may_fall_back() and not torch.is_warn_always_enabled():
            self._always = True
            torch.set_warn_always(True)

    def facts(self) -> tuple[Fallback, ...]:
        """Return what was said, in that order; torch warns as before from then on."""
        if self._always:
            torch.set_warn_always(False)
        return tuple(self._found)

    def _heard(self, show: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
        def shown(message: Any) -> Any:
            hits.count += 1
            try:
                self._note(str(message.message))
            except Exception as error:
                self._trouble(error)
            return show(message)

        return shown

    def _note(self, text: str) -> None:
        said = next(filter(None, (each.search(text) for each in _SAYS)), None)
        if said is None or len(self._found) >= _MOST:
            return
        try:
            place = caller(3)
        except ValueError:  # called by no Python at all
            place = None
        found = Fallback(place=place, operation=said["operation"], device=said["device"])
        if found not in self._found:
            self._found.append(found)


def _may_fall_back() -> bool:
    """Return whether there is an accelerator other than CUDA's."""
    accelerator = getattr(torch, "accelerator", None)  # of torch 2.6 on
    other = accelerator is not None and accelerator.is_available() and not torch.cuda.is_available()
    return bool(torch.backends.mps.is_available() or other)


PROBE = Probe(
    name="cpu-fallback",
    make=lambda deep: FallbackWatch(deep.fail),
    install=FallbackWatch.install,
    causes={"fallbacks": FallbackWatch.facts},
)
