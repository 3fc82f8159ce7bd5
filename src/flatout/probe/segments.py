"""A stretch of the training thread, the piece that steps are put together from."""

__all__ = ["Segment"]


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

    @property
    def forwards(self) -> int:
        """Forward passes of outermost modules, with or without gradients."""
        return self.grad_forwards + self.plain_forwards
