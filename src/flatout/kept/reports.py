"""Who is told what becomes of things that are kept: why some are not, and that what was handed out was wrong."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field

from flatout.errors import ChangedTooLate
from flatout.pipeline.inspect.repeated_proof import ProofPace

__all__ = ["Reports"]


@dataclass(frozen=True)
class Reports:
    """Who is told why nothing is kept (`left`), and of results that were wrong (`failed`).

    `on_change`: whether a training stops where results turn out to have been wrong, "stop" or "warn". `pace`: of the
    proofs of all functions together.
    """

    left: Callable[[str], None] = lambda reason: None
    failed: Callable[[str], None] = lambda reason: None
    on_change: str = "stop"
    pace: ProofPace = field(default_factory=ProofPace)

    def wrong(self, reason: str, why: str, fix: str) -> None:
        """Say that what was kept, and may have been handed out, is not what would be made: `reason`, `why`.

        Raises:
            ChangedTooLate: the training is not to go on after that.
        """
        self.failed(reason)
        error = ChangedTooLate(f"{reason}.", why, f'Leave {fix} out, or continue with on_change="warn".')
        if self.on_change == "stop":
            raise error
        warnings.warn(str(error), RuntimeWarning, stacklevel=5)
