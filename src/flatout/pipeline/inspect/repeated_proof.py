"""Whether batches that were kept are those that the data set gives."""

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from flatout.pipeline.inspect.determinism import ask, streams_kept
from flatout.torch_loader.worker_start import computing_on
from flatout.watch.dataset_state import random_states, restore_random_states, same, seed_streams
from flatout.watch.script_signals import any_but_signals

__all__ = ["ProofPace", "agree", "agrees_here", "asked_again", "plain_of"]

_SEED = 4099
_SHARE = 0.003  # of the time, for proofs within a pass
_SELDOM = 0.0005  # where all that is known to change is seen at once: for what nobody thought of


class ProofPace:
    """Says when a proof is due: all of them together are to take a small share of the time."""

    def __init__(self) -> None:
        """Have one due at once."""
        self.next_s = 0.0

    @property
    def due(self) -> bool:
        """Return whether it is time for one."""
        return time.monotonic() > self.next_s

    @contextlib.contextmanager
    def proving(self, seldom: bool = False) -> Iterator[None]:
        """Clock a proof, and put off the next one accordingly; `seldom`: a much smaller share of the time is enough."""
        start = time.monotonic()
        yield
        end = time.monotonic()
        self.next_s = end + (end - start) / (_SELDOM if seldom else _SHARE)


def asked_again(dataset: Any, indices: list[int]) -> Any:
    """Return samples of a copy of `dataset`; what they draw is drawn."""
    return ask(dataset, indices, put_back=False)


def plain_of(
    dataset: Any, collate: Callable[[Any], Any], indices: list[int], asked: Callable[[Any, list[int]], Any]
) -> Any:
    """Return what `dataset`, `asked` again, gives for `indices` from a random state that `agree` begins from, too.

    Raises:
        Exception: whatever the data set or the collate function raises.
    """
    seed_streams(_SEED)
    return collate(asked(dataset, indices))


def agree(plain: Any, take: Callable[[torch.Tensor], Any], indices: list[int]) -> bool:
    """Return whether `take` gives for `indices` the batch `plain`, which `plain_of` gave.

    Random streams are put back to where they stood.
    """
    before = random_states()
    try:
        seed_streams(_SEED)
        return same(plain, take(torch.tensor(indices)))
    except any_but_signals():  # what is kept does not suit
        return False
    finally:
        restore_random_states(before)


def agrees_here(
    plain: Any, asked: Callable[[], Any], take: Callable[[torch.Tensor], Any], indices: list[int], threads: int
) -> bool:
    """Return whether `take` gives what a copy of the process gave, or what `asked` gives here, on more threads."""
    with computing_on(threads), streams_kept():
        return agree(plain, take, indices) or agree(asked(), take, indices)
