"""Padding that is computed, as the masks say that the script itself hands to its model; a deep run looks at it.

Read are an `attention_mask` of the outermost module's call, the `key_padding_mask` of the first attention layer in that
call, or else the indices of the first embedding that has a `padding_idx`. Sums stay where the mask is until the end.
"""

from collections.abc import Callable, Iterable
from threading import get_ident
from typing import Any

import torch
from torch.compiler import is_dynamo_compiling

from flatout.probe.core.event_log import EventLog
from flatout.probe.core.probe import Probe
from flatout.probe.core.probe_failure import guarded
from flatout.probe.core.seams import Hits, Seams
from flatout.probe.core.user_places import caller
from flatout.probe.loader.loading import tensors_in
from flatout.schema.run import Frame, Padding

__all__ = ["PROBE", "PaddingWatch", "padded_ends"]

_LOOKS = 200  # calls of the model
_BY_STRENGTH = ("attention_mask", "key_padding_mask", "padding_idx")


class PaddingWatch:
    """Looks at the masks of the calls that train."""

    def __init__(self, event_log: EventLog) -> None:
        """Look at nothing yet."""
        self._event_log = event_log
        self.trouble: Callable[[Exception], None] = lambda error: event_log.tracker.trouble(error)
        self._seen: dict[str, list[tuple[int, torch.Tensor]]] = {}
        self._taken: set[str] = set(_BY_STRENGTH)  # of the call under way; before the first one, all are
        self._place: Frame | None = None
        self._packed = False

    def install(self, seams: Seams) -> None:
        """Wrap the functions that are given the masks."""
        place = "torch.nn.functional:"
        seams.wrap(place + "multi_head_attention_forward", self._watched(self._attends))
        seams.wrap(place + "embedding", self._watched(self._embeds))
        seams.wrap("torch.nn.utils.rnn:pack_padded_sequence", self._watched(self._packs))

    def called(self, module: Any, arguments: tuple[tuple[Any, ...], dict[str, Any]]) -> None:
        """An outermost module is about to be called."""
        looked = sum(map(len, self._seen.values()))
        if not (module.training and torch.is_grad_enabled()) or looked >= _LOOKS:
            self._taken = set(_BY_STRENGTH)
            return
        self._taken = set()
        self._place = self._place or caller(2)
        self._look_at_call(arguments)

    @guarded
    def _look_at_call(self, arguments: tuple[tuple[Any, ...], dict[str, Any]]) -> None:
        args, kwargs = arguments
        mask = kwargs.get("attention_mask")
        if mask is None and args and isinstance(args[0], dict):
            mask = args[0].get("attention_mask")
        if not isinstance(mask, torch.Tensor) or mask.dim() != 2 or mask.is_floating_point():
            return
        others = (one for one in tensors_in((args, kwargs)) if one is not mask)
        pairs = mask.shape[0] == mask.shape[1] and all(one.shape[:2] != mask.shape for one in others)
        if not pairs:  # it says who sees whom
            self._take("attention_mask", padded_ends(mask == 0))

    def _watched(self, look: Callable[..., None]) -> Callable[[Callable[..., Any], Hits], Callable[..., Any]]:
        event_log, tracing = self._event_log, self._event_log.tracing

        def make(original: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
            def call(*args: Any, **kwargs: Any) -> Any:
                if (
                    (tracing.possible and is_dynamo_compiling())
                    or event_log.fetching
                    or get_ident() != event_log.thread
                ):
                    return original(*args, **kwargs)
                hits.count += 1
                look(*args, **kwargs)
                return original(*args, **kwargs)

            return call

        return make

    @guarded
    def _attends(self, *args: Any, **kwargs: Any) -> None:
        mask = kwargs.get("key_padding_mask")
        if isinstance(mask, torch.Tensor) and mask.dim() == 2:
            self._take("key_padding_mask", mask == -torch.inf if mask.is_floating_point() else mask.bool())

    @guarded
    def _embeds(self, indices: Any, weight: Any, padding_idx: int | None = None, *_: Any, **__: Any) -> None:
        if padding_idx is not None and indices.dim() == 2 and indices.shape[1] > 1:
            self._take("padding_idx", padded_ends(indices == padding_idx))

    @guarded
    def _packs(self, *_: Any, **__: Any) -> None:
        self._packed = True

    def _take(self, source: str, padded: torch.Tensor) -> None:
        if source in self._taken or not padded.numel():
            return
        self._taken.add(source)
        rows = padded.shape[0]
        sums = torch.stack([padded.sum(), padded.all(dim=0).sum() * rows, padded.all(dim=1).any()])
        self._seen.setdefault(source, []).append((padded.numel(), sums))

    def facts(self) -> tuple[Padding, ...]:
        """Return what the strongest of the sources said; nothing where padded rows were packed."""
        for source in (name for name in _BY_STRENGTH if name in self._seen):
            seen = self._seen[source]
            padded, cut_off, empty = (sum(column) for column in zip(*_numbers(sums for _, sums in seen), strict=True))
            if source == "attention_mask" and 2 * empty >= len(seen):
                continue  # sequences of padding alone in most batches: zeros stand for what counts in this mask
            if self._packed and source == "padding_idx":
                break
            positions = sum(number for number, _ in seen)
            fields = {"batches": len(seen), "positions": positions, "padded": padded, "cut_off": cut_off}
            return (Padding(source=source, place=self._place, **fields),)
        return ()


def _numbers(sums: Iterable[torch.Tensor]) -> list[list[int]]:
    """Return the sums as numbers, read at once for each device: a wait for each of them would take long."""
    table: list[list[int]] = torch.stack([one.to("cpu") for one in sums]).tolist()
    return table


def padded_ends(is_padding: torch.Tensor) -> torch.Tensor:
    """Return which padding lies at the start or the end of its row: the index may stand for a word in between."""
    left = is_padding.long().cumprod(dim=1)
    right = is_padding.flip(1).long().cumprod(dim=1).flip(1)
    return (left + right) > 0


PROBE = Probe(
    name="padding",
    make=lambda deep: PaddingWatch(deep.event_log),
    install=PaddingWatch.install,
    called=PaddingWatch.called,
    causes={"padding": PaddingWatch.facts},
)
