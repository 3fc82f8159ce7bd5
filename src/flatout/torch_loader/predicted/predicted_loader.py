"""What is kept of a loader whose random samples other processes make: the processes, the streams, what was learned."""

import weakref
from typing import TYPE_CHECKING, Any

from flatout.torch_loader.predicted.backoff import Backoff
from flatout.torch_loader.predicted.batch_transport import bytes_of
from flatout.torch_loader.predicted.draw_pattern import DrawPattern
from flatout.torch_loader.predicted.early_batches import EarlyBatches
from flatout.torch_loader.predicted.random_streams import StreamSet, unpredictable
from flatout.torch_loader.predicted.sample_worker import MadeFrom
from flatout.torch_loader.predicted.worker_shares import WorkerShare
from flatout.torch_loader.worker_pool import generator_of
from flatout.watch.dataset_state import draws_elsewhere, reseeds
from flatout.watch.files.opened_files import are_as_before, mark_of
from flatout.watch.own_generators import generators_in

if TYPE_CHECKING:
    from flatout.torch_loader.handover import HandoverPlan
    from flatout.torch_loader.worker_origins import WorkerOrigin

__all__ = ["PredictedLoader", "shares_generator", "undrawable"]

_HANG_S, _HANG_TIMES = 60.0, 50  # a batch that takes this long, and so many times what it took here, never comes


def undrawable(loader: Any) -> str:
    """Return why the random samples of `loader` cannot be made elsewhere, an empty string where nothing says so."""
    import torch

    for thing in (loader.dataset, loader.collate_fn):
        elsewhere = draws_elsewhere(thing)
        if elsewhere:
            return elsewhere
        if torch.cuda.is_available() and reseeds(thing):
            return "seeds random streams, those of CUDA devices too"
    return ""


def shares_generator(loader: Any) -> str:
    """Return that samples draw from the generator of the sampler, whose indices are drawn ahead; "" where not."""
    own, name = generator_of(loader), type(loader.dataset).__name__
    shared = own is not None and any(one is own for one in _generators_of(loader))
    return f"{name} draws from the generator that its sampler draws from" if shared else ""


def _generators_of(loader: Any) -> list[Any]:
    return [*generators_in(loader.dataset), *generators_in(loader.collate_fn)]


class PredictedLoader:
    """What is kept of a loader from one pass to the next.

    Attributes:
        pattern: how much is drawn.
        backoff: when nothing is predicted.
        streams: what may be drawn from.
        early: the processes.
        here_s: what a batch takes here.
        share: of the batches that came from other processes.
        losses: how often processes ended or hung.
        to_prove: how many batches are still to be made both here and elsewhere.
        user: the pass that has the processes.
    """

    def __init__(self, plan: "HandoverPlan", share: WorkerShare) -> None:
        """Keep nothing yet."""
        self.plan, self.share = plan, share
        self.pattern, self.backoff = DrawPattern(), Backoff()
        self.streams = StreamSet([])
        self.early: EarlyBatches | None = None
        self.here_s = 0.0
        self.losses = 0
        self.to_prove = min(plan.workers, 3) + 1
        self.user: weakref.ref[Any] | None = None
        self._origin: WorkerOrigin | None = None
        self._files: dict[str, Any] = {}  # that the data set has mapped

    def begin(self, loader: Any, fetch: Any, batch: Any) -> str:
        """Have processes that are copies of the data set as it is; return why there are none, "" where there are.

        `batch`: one, None where none was made yet.
        """
        origin = self.plan.origins.begin_pass(loader, pass_s=self.here_s * len(loader))
        if origin is None:
            return str(self.plan.origins.reasons.get(loader, "")) or "may change unseen"
        if origin is self._origin and self.early is not None:
            self.early.forget()
            return ""
        own = [*origin.graph.met.generators, *_generators_of(loader)]
        against = unpredictable(own) or shares_generator(loader)
        if against:
            return against
        self.end()
        self._origin, self.streams = origin, StreamSet(own)
        self._files = {name: mark_of(name) for name in origin.graph.files}
        roots = [(type(loader.dataset).__name__, loader.dataset), ("collate_fn", loader.collate_fn)]
        self.early = EarlyBatches(
            self.plan.workers,
            2 * self.plan.prefetch,
            MadeFrom(fetch, self.streams, roots),
            batch_bytes=bytes_of(batch),
            hang_s=max(_HANG_S, _HANG_TIMES * self.here_s),
        )
        return ""

    def stands(self) -> bool:
        """Return whether the data set is what the processes are copies of."""
        return self._origin is not None and self._origin.holds() and are_as_before(self._files)

    @property
    def has_changed(self) -> bool:
        """Return whether it is that no more, and will not be again."""
        return self._origin is None or bool(self._origin.changed) or not are_as_before(self._files)

    def is_unharmed(self, *, deep: bool) -> bool:
        """Return whether reading the data set has left it as it was; `deep`: look at what is not seen at once, too."""
        if self._origin is None:
            return False
        return self._origin.begin_pass(live=True) if deep else not self._origin.changed_by_reading()

    def end_pass(self) -> None:
        """Look at what is not seen at once.

        Raises:
            ChangedTooLate: it has changed.
        """
        if self._origin is not None and self.early is not None:
            self._origin.end_pass()

    def end(self) -> None:
        """End the processes."""
        if self.early is not None:
            self.early.end()
        self.early, self._origin = None, None
