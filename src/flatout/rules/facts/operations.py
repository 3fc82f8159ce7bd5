"""The kinds of operations in a model's forward pass, as the deep run counted them on a device."""

from flatout.schema.run import Arithmetic, Run

__all__ = ["TRAINING", "counted", "share_of"]

TRAINING = 3.0  # operations of forward and backward over those of forward: each product has two more in backward


def counted(run: Run) -> Arithmetic | None:
    """Return what was counted on a CUDA device; None where nothing was."""
    found = run.causes.arithmetic if run.causes else None
    return found if found is not None and found.flops and run.environment.device_kind == "cuda" else None


def share_of(found: Arithmetic, *words: str) -> float:
    """Return the share of the operations whose kind has all of `words`."""
    whole = sum(found.flops.values())
    some = sum(number for kind, number in found.flops.items() if all(word in kind.split() for word in words))
    return some / whole if whole > 0 else 0.0
