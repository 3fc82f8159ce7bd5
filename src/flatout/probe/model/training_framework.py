"""Which framework's loop drives the training: read from the frames that lead to a step, not from what is imported."""

import sys
from types import FrameType

from flatout.probe.core.probe import Probe

__all__ = ["PROBE", "driving_framework"]

_LOOPS = {
    "lightning.pytorch.": "lightning",
    "pytorch_lightning.": "lightning",
    "lightning.fabric.": "fabric",
    "lightning_fabric.": "fabric",
    "transformers.trainer": "transformers",
    "transformers.": "",  # a model's code: says nothing about the loop
    "accelerate.": "accelerate",
}


def driving_framework(frame: FrameType | None) -> str:
    """Return "lightning", "fabric", "transformers", "accelerate", or "" where the script has a loop of its own.

    The outermost frame that belongs to one decides: the Trainer of transformers uses accelerate, Lightning uses Fabric.
    """
    found = ""
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        named = next((name for start, name in _LOOPS.items() if module.startswith(start)), "")
        found = named or found
        frame = frame.f_back
    return found


PROBE: Probe[list[str]] = Probe(
    name="training-framework",
    make=lambda deep: [""],
    start=lambda found: found.append(driving_framework(sys._getframe(1))),
    causes={"framework": lambda found: found[-1]},
)
