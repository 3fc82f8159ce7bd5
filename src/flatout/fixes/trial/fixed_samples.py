"""Hold the samples of one batch at a place on their way into every batch. A ceiling, not a cure.

`raw`: what the data set hands to its transform, which is still applied; `fixed`: what comes before the first random
operation of its list; `sample`: what the data set gives. What comes after that place is done as ever. What a step takes
then is the most that any change of the work before that place can give. Trials of a diagnosis switch it on and off in
turns; no recipe can hold it. Workers that are forked follow the switch, each with samples of its own. Other workers
know nothing of it: where they make the samples, it never acts.
"""

from typing import TYPE_CHECKING, Any

from flatout.fixes.core.fix import Fix
from flatout.schema.phase import Phase
from flatout.schema.trial import Equivalence

if TYPE_CHECKING:
    from flatout.fixes.core.site import Site

__all__ = ["HELD_SAMPLES", "patch"]


def patch(site: "Site", *, place: str = "raw", workers: bool = False) -> None:
    """Hold the samples of data sets with indices at `place`, in this process and in workers forked from it.

    `workers`: the training's samples are made there; what is held here, for a validation, does not count as having
    acted.
    """
    import flatout.pipeline.read.fixed_input  # noqa: F401  (before workers are forked, of which each would import it anew)

    held = _Fetched(site, place, workers)
    site.wrap("torch.utils.data._utils.fetch:_MapDatasetFetcher.fetch", held.fetches, in_workers=True)


class _Fetched:
    """The samples that are held, some for each data set."""

    def __init__(self, site: "Site", place: str, workers: bool) -> None:
        self._site, self._place, self._workers = site, place, workers
        self._held: dict[int, tuple[Any, Any]] = {}  # id of a data set -> it, and what is held of it

    def fetches(self, original: Any) -> Any:
        """Make a batch of what is held."""
        from torch.utils.data import get_worker_info

        def call(fetcher: Any, index: Any) -> Any:
            held = self._of(fetcher, index) if fetcher.auto_collation else None
            if held is None:
                return original(fetcher, index)
            if not self._workers or get_worker_info() is not None:
                self._site.hit(self._place)
            return fetcher.collate_fn(held.samples(len(index)))

        return call

    def _of(self, fetcher: Any, indices: Any) -> Any:
        dataset = fetcher.dataset
        if id(dataset) not in self._held:
            self._held[id(dataset)] = dataset, self._hold(fetcher, list(indices))
        return self._held[id(dataset)][1]

    def _hold(self, fetcher: Any, indices: list[int]) -> Any:
        """Return what is held of a data set, None where that cannot be: its own samples come then."""
        from flatout.pipeline.read.fixed_input import hold

        try:
            return hold(fetcher.dataset, indices, self._place, fetcher.collate_fn)
        except Exception:  # a stranger's data set, given something that it does not expect
            return None


HELD_SAMPLES = Fix(
    name="held-samples",
    equivalence=Equivalence.SEMANTIC,
    phases=(Phase.INPUT,),
    patch=patch,
    switchable=True,
    on_request=True,
)
