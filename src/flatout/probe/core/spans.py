"""The account of the training thread: at any moment exactly one phase is running, so the sum is the wall time."""

__all__ = [
    "BACKWARD",
    "CHECKPOINT",
    "EPOCH_GAP",
    "FORWARD",
    "INPUT",
    "LEAD",
    "LOSS",
    "NUM_SLOTS",
    "OPTIMIZER",
    "SYNC",
    "TAIL",
    "TRANSFER",
    "PhaseTimer",
]

INPUT, TRANSFER, FORWARD, BACKWARD, OPTIMIZER, SYNC, CHECKPOINT, LEAD, LOSS, TAIL, EPOCH_GAP = range(11)
"""Slots of the account: seven phases as in `STEP_PHASES`, host time in three parts, starting a loader."""

NUM_SLOTS = 11


class PhaseTimer:
    """Charges the time of one thread to one slot at a time; nested spans take their time out of the outer one.

    `moment` is the time of the event that is being told, in nanoseconds; whoever tells it sets it first. `last` is when
    the slot that runs was charged, `start` when the totals began, `stack` holds the slots of the enclosing spans.
    """

    __slots__ = ("current", "last", "moment", "stack", "start", "totals")

    def __init__(self, moment: int) -> None:
        """Begin at `moment`, with host time before the first forward pass."""
        self.stack: list[int] = []
        self.current = LEAD
        self.totals = [0] * NUM_SLOTS
        self.moment = self.start = self.last = moment

    def enter(self, slot: int) -> None:
        """Begin a span of `slot` inside whatever runs now."""
        moment = self.moment
        self.totals[self.current] += moment - self.last
        self.last = moment
        self.stack.append(self.current)
        self.current = slot

    def leave(self, host: int = -1) -> None:
        """End the innermost span; `host` names the part of host time that follows when no span encloses this one."""
        moment = self.moment
        self.totals[self.current] += moment - self.last
        self.last = moment
        if self.stack:
            self.current = self.stack.pop()
        if host >= 0 and not self.stack:
            self.current = host

    def cut(self, host: int = -1) -> tuple[int, int, list[int]]:
        """Close the totals here and begin new ones; return start, end and the slots' nanoseconds in between."""
        moment = self.moment
        self.totals[self.current] += moment - self.last
        self.last = moment
        start, totals = self.start, self.totals
        self.start, self.totals = moment, [0] * NUM_SLOTS
        if host >= 0 and not self.stack:
            self.current = host
        return start, moment, totals

    def charge(self, slot: int, until: int) -> None:
        """Charge `slot` with the time from the last event to the moment `until`; open spans stay as they are."""
        if until > self.last:
            self.totals[slot] += until - self.last
            self.last = until

    def clear(self) -> None:
        """Forget spans left open by an exception; their time so far stays where it was charged."""
        if self.stack:
            self.stack.clear()
            self.totals[self.current] += self.moment - self.last
            self.last = self.moment
            self.current = TAIL

    def go_on(self, start: int, last: int, totals: list[int]) -> None:
        """Go on at `last`, in the spans that are open now, with totals that began at `start`."""
        self.start, self.last, self.moment, self.totals = start, last, last, totals

    def copy(self) -> "PhaseTimer":
        """Return an account of its own that stands where this one does."""
        twin = PhaseTimer(self.moment)
        twin.stack, twin.current, twin.last = self.stack.copy(), self.current, self.last
        twin.start, twin.totals = self.start, self.totals.copy()
        return twin
