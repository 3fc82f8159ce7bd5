"""The kinds of time: what a training step is made of, and what lies between the steps."""

from enum import StrEnum

__all__ = ["OUTSIDE_PHASES", "STEP_PHASES", "Phase"]


class Phase(StrEnum):
    """One kind of time in the account; the first eight are parts of a step, the rest lie outside the steps."""

    INPUT = "input"
    TRANSFER = "transfer"
    FORWARD = "forward"
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"
    SYNC = "sync"
    CHECKPOINT = "checkpoint"
    HOST = "host"
    STARTUP = "startup"
    EPOCH_GAP = "epoch_gap"
    VALIDATION = "validation"
    ROLLOUT = "rollout"
    OTHER = "other"


STEP_PHASES = (
    Phase.INPUT,
    Phase.TRANSFER,
    Phase.FORWARD,
    Phase.BACKWARD,
    Phase.OPTIMIZER,
    Phase.SYNC,
    Phase.CHECKPOINT,
    Phase.HOST,
)
"""The phases of a step, in the order in which every recording stores them."""

OUTSIDE_PHASES = (
    Phase.STARTUP,
    Phase.EPOCH_GAP,
    Phase.VALIDATION,
    Phase.ROLLOUT,
    Phase.CHECKPOINT,
    Phase.OTHER,
)
"""The phases outside the steps, in the order in which reports show them."""
