"""A few steps of the deep run as they ran: what the training thread did from when to when."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence

from flatout.schema.run import Span, Step

__all__ = ["DRAWN_FROM", "MAIN", "READING", "STEPS", "Timeline", "fetched"]

MAIN, STEPS, READING = "training thread", "steps", "reading"

_STEPS, _UNTIL = 8, 40  # the last few of the first so many: what fills up at the start has done so
DRAWN_FROM = _UNTIL - _STEPS - 2
"""The step after which what is slow to start may start: two steps more than are drawn."""

_MOST_SPANS = 800  # of fewer steps, where they have more


class Timeline:
    """Takes down every change of phase, and keeps those of a few steps. Times are the account's."""

    def __init__(self, phase: Callable[[], str]) -> None:
        """Take what says which phase runs now."""
        self._phase = phase
        self._spans: deque[Span] = deque(maxlen=4 * _MOST_SPANS)  # what is before the first step is not kept long
        self._steps: deque[Span] = deque(maxlen=_STEPS)
        self._name, self._since_ns = "", 0
        self.ended = False  # whether all that is drawn has been

    def changed(self, moment: int) -> None:
        """Something happened at `moment`; it may have changed the phase."""
        if self.ended:
            return
        name = str(self._phase())
        if name != self._name:
            self._close(moment)
            self._name, self._since_ns = name, moment

    def step(self, step: Step, number: int) -> None:
        """Take one finished step, the `number`-th; what follows the last one that is wanted is left out."""
        if self.ended:
            return
        end_ns = step.start_ns + step.wall_ns
        self._steps.append(Span(lane=STEPS, name=f"step {number - 1}", start_ns=step.start_ns, wall_ns=step.wall_ns))
        while len(self._spans) > _MOST_SPANS and len(self._steps) > 1:
            self._steps.popleft()
            self._cut()
        self._cut()
        if number >= _UNTIL:
            self.end(end_ns)

    def end(self, moment: int) -> None:
        """Take no more after `moment`."""
        if not self.ended:
            self._close(moment)
        self.ended = True

    def spans(self) -> tuple[Span, ...]:
        """Return the steps and the phases of the training thread in them, as long as they were inside."""
        if not self._steps:
            return ()
        end_ns = self._steps[-1].start_ns + self._steps[-1].wall_ns
        self.end(end_ns)  # the script was ended with the last step
        inside = [span for span in self._spans if span.start_ns < end_ns]
        return (*self._steps, *inside[-_MOST_SPANS:])

    def _close(self, moment: int) -> None:
        if self._name and moment > self._since_ns:
            self._spans.append(
                Span(lane=MAIN, name=self._name, start_ns=self._since_ns, wall_ns=moment - self._since_ns)
            )

    def _cut(self) -> None:
        begin_ns = self._steps[0].start_ns
        while self._spans and self._spans[0].start_ns + self._spans[0].wall_ns <= begin_ns:
            self._spans.popleft()


def fetched(lane: str, moments: Iterable[Sequence[int]]) -> Iterator[Span]:
    """Yield the spans of batches that were fetched: each with when it began, its samples were there, and it ended."""
    for begun, sampled, ended in moments:
        yield Span(lane=lane, name="sample", start_ns=begun, wall_ns=sampled - begun)
        if ended > sampled:
            yield Span(lane=lane, name="collate", start_ns=sampled, wall_ns=ended - sampled)
