"""A stretch of the training thread, the piece that steps are put together from."""

from collections import deque
from statistics import median_low

__all__ = ["AloneForwards", "Segment"]


_RECENT = 31  # steps
_FEWEST, _EVERY = 3, 8  # unusual steps, and one in so many: a rollout is learned from a few times


class Segment:
    """A stretch of the training thread between two events, with what happened in it.

    `source` is the serial of the pass over a loader whose batch it works on, `batch` says that it begins with asking
    for that batch, `slots` are the account's nanoseconds, `acting` says that a module in training mode was called
    without gradients (a policy that acts, not a validation), `stepped` that it ends with an optimizer step by hand.
    """

    __slots__ = (
        "acting",
        "backwards",
        "batch",
        "end",
        "grad_forwards",
        "plain_forwards",
        "slots",
        "source",
        "start",
        "stepped",
    )

    def __init__(self, source: int | None = None) -> None:
        """Nothing has happened yet."""
        self.source = source
        self.batch = self.acting = self.stepped = False
        self.start = self.end = 0
        self.slots: list[int] = []
        self.grad_forwards = self.plain_forwards = self.backwards = 0

    def forward_done(self, with_grad: bool, acting: bool = False) -> None:
        """An outermost module has been called; `acting`: in training mode, without gradients."""
        if with_grad:
            self.grad_forwards += 1
        else:
            self.plain_forwards += 1
            self.acting |= acting

    @property
    def marks(self) -> tuple[int | None, ...]:
        """What has happened in it so far, without the times."""
        calls = (self.grad_forwards, self.plain_forwards, self.backwards)
        return (self.source, self.batch, self.acting, self.stepped, *calls)

    @property
    def forwards(self) -> int:
        """Forward passes of outermost modules, with or without gradients."""
        return self.grad_forwards + self.plain_forwards


class AloneForwards:
    """How many forward passes of a step no backward pass comes of, which tells a validation by hand from training.

    A step is unusual when most recent steps have the same, much smaller number of them. A policy that acts before it
    learns has no such number, or it acts before every few steps: what comes so often, and with gradients, is no
    validation. A teacher has the same number in every step.
    """

    def __init__(self) -> None:
        """Know no step yet."""
        self.now = 0  # in the step under way
        self.recent: deque[int] = deque(maxlen=_RECENT)  # of the last steps that were no validation
        self.found: deque[bool] = deque(maxlen=_RECENT)  # which of the last steps were unusual, and had gradients

    def unusual(self, number: int) -> bool:
        """Return whether `number` of them in one step look like a validation; False until three steps are known."""
        if len(self.recent) < 3:
            return False
        usual = median_low(self.recent)
        return number > 2 * usual + 3 and self.recent.count(usual) * 2 >= len(self.recent)

    @property
    def validating(self) -> bool:
        """Return whether the step under way looks like a validation by now."""
        return self.now > 0 and self.unusual(self.now) and not self._regular

    @property
    def _regular(self) -> bool:
        """Return whether steps that are unusual come every few steps: then they are a part of the training."""
        return sum(self.found) >= _FEWEST and sum(self.found) * _EVERY >= len(self.found)

    def end(self, number: int, acting: bool, plain: bool) -> bool:
        """Take a step with `number` of them; return whether they were a validation.

        `acting`: a policy acted without gradients. `plain`: some were made without gradients.
        """
        self.now = 0
        if not number or acting or not self.unusual(number):
            self.recent.append(number)
            self.found.append(False)
            return False
        regular = not plain and self._regular
        self.found.append(not plain)
        return not regular
