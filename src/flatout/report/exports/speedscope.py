"""What the deep run's sampler saw, as a flame graph that speedscope opens.

The format is speedscope's own file format, of its JSON schema the profile of type "sampled": stacks with a weight each.
There is one profile for the training process and one for the workers; the outermost frame is the phase.
"""

import json
from collections.abc import Sequence
from typing import Any

from flatout.report.rows import finite
from flatout.schema.report import Report
from flatout.schema.run import LineCost
from flatout.schema.secrets import masked_plain

__all__ = ["speedscope"]

SCHEMA = "https://www.speedscope.app/file-format-schema.json"
"""The name of the format inside the file; nothing is fetched from there."""


def speedscope(report: Report) -> str:
    """Return the flame graph as JSON text; without a deep run its profiles are empty."""
    lines = report.run.causes.lines if report.run.causes is not None else ()
    frames: dict[tuple[str, str, int], int] = {}
    profiles = [
        _profile(name, [line for line in lines if line.process == process], frames)
        for process, name in (("main", "training process"), ("worker", "loader workers"))
    ]
    document = {
        "$schema": SCHEMA,
        "exporter": "flatout",
        "name": report.run.header.script or "script",
        "shared": {"frames": [_frame(*frame) for frame in frames]},
        "profiles": profiles,
        "activeProfileIndex": 0,
    }
    return json.dumps(masked_plain(document), ensure_ascii=True, allow_nan=False) + "\n"


def _frame(name: str, file: str, line: int) -> dict[str, Any]:
    return {"name": name, "file": file, "line": line} if file else {"name": name}


def _profile(name: str, lines: Sequence[LineCost], frames: dict[tuple[str, str, int], int]) -> dict[str, Any]:
    samples = [[frames.setdefault(frame, len(frames)) for frame in _stack(line)] for line in lines]
    weights = [max(0.0, finite(line.seconds)) for line in lines]
    return {
        "type": "sampled",
        "name": name,
        "unit": "seconds",
        "startValue": 0,
        "endValue": sum(weights),
        "samples": samples,
        "weights": weights,
    }


def _stack(line: LineCost) -> list[tuple[str, str, int]]:
    """Return the frames of one stack, the outermost first: phase, the user's own lines, and what they called."""
    part = line.part or line.stage
    phase = f"{line.phase.value} ({part})" if part else line.phase.value
    own = [(f"{frame.function or '?'}:{frame.line}", frame.file, frame.line) for frame in reversed(line.stack)]
    called = ".".join(filter(None, (line.leaf, line.leaf_function)))
    return [(phase, "", 0), *own, *([(called, "", 0)] if line.leaf and called else [])]
