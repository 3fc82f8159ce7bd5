"""The stages of making a batch, each given by the two places between which it lies."""

from flatout.schema.facts import HELD_FIXED, HELD_INPUT, HELD_RAW, HELD_SAMPLES, HELD_TRANSFER

__all__ = ["COLLATE", "FIXED_PART", "READING", "SAMPLES", "TRANSFORMS", "WHOLE_INPUT", "WHOLE_TRANSFER", "Stage"]

Stage = tuple[str, str]
"""The places between which a stage lies; "" as the first means the start."""

READING: Stage = ("", HELD_RAW)
SAMPLES: Stage = ("", HELD_SAMPLES)
TRANSFORMS: Stage = (HELD_RAW, HELD_SAMPLES)
COLLATE: Stage = (HELD_SAMPLES, HELD_INPUT)
FIXED_PART: Stage = ("", HELD_FIXED)
WHOLE_INPUT: Stage = ("", HELD_INPUT)
WHOLE_TRANSFER: Stage = ("", HELD_TRANSFER)
