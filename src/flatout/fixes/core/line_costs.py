"""How much of the time of a recording goes to lines of some kind, for fixes that act on what such lines do."""

import linecache
import re
from collections.abc import Set

from flatout.schema.run import LineCost, Run

__all__ = ["share_of_lines"]


def share_of_lines(run: Run, leaves: Set[str], code: re.Pattern[str]) -> float:
    """Return the share of what the sampler saw of the main process, of some lines; 0 where it saw nothing.

    `leaves`: packages that such lines are in; `code` is found in the text of others.
    """
    costs = [cost for cost in (run.causes.lines if run.causes else ()) if cost.process == "main"]
    whole = sum(cost.seconds for cost in costs)
    return sum(cost.seconds for cost in costs if _is_one(cost, leaves, code)) / whole if whole > 0 else 0.0


def _is_one(cost: LineCost, leaves: Set[str], code: re.Pattern[str]) -> bool:
    if cost.leaf in leaves or not cost.stack:
        return cost.leaf in leaves
    frame = cost.stack[0]
    linecache.checkcache(frame.file)
    return code.search(linecache.getline(frame.file, frame.line)) is not None
