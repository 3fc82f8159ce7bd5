"""Keep the text of what the script writes as JSON again and again, and make only that of what is new.

## What it does

`json.dump` and `json.dumps` of a large list or dictionary are answered from the text of its parts: items of
dictionaries, runs of 16 items of lists. A part that was written before has its text already. It acts on dict, list,
tuple, str, int, float, bool and None; classes made from them, `cls=`, `default=` and files that are none of Python's
own are left to json, and so is every value that raises an error.

## Why it helps

A list of 100 rows of six values was written 2.2x as fast with `indent=1` (2.1 to 2.5), one of 1,000 rows 5.3x (3.8 to
5.4), a dictionary of three lists of 1,000 numbers 4.6x (3.4 to 5.7), of 100 numbers as fast as before (0.8 to 1.3); CPU
time with opening the file, medians and ranges of n=5 pairs of 40 calls, each with one row more; 2 cores of an AMD EPYC
under KVM, beside other programs, Python 3.11.

## How equal

BITWISE: what is computed does not depend on it. Text and files have the same bytes. A part is known by its bytes in the
format of `marshal`, which tells 1, 1.0 and True apart; a list that was changed in place is seen.

## When it is wrong

What is kept takes memory, at most some 64 MiB for each way to write (`indent`, `separators` and so on). Where most of
what comes is new each time, it ends by itself. Names that modules took before (`from json import dump`) go on as they
are. A history that is written whole in each step still costs more with each step: write a line for each step instead.
"""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from flatout.fixes.core.edit import Unwritten
from flatout.fixes.core.fix import Fix, Unfit
from flatout.fixes.core.line_costs import share_of_lines
from flatout.schema.phase import Phase
from flatout.schema.run import Run
from flatout.schema.trial import Equivalence

if TYPE_CHECKING:
    from flatout.fixes.core.site import Site

__all__ = ["FIX", "choices", "patch"]

_LEAST_SHARE = 0.01  # of what the sampler saw of the main process
_LEAVES = frozenset({"json"})
_WRITES = re.compile(r"\bjson\.dumps?\(")


def choices(run: Run) -> tuple[Mapping[str, object], ...]:
    """Offer it where lines that write JSON cost time."""
    if share_of_lines(run, _LEAVES, _WRITES) < _LEAST_SHARE:
        return Unfit("no line of the script's spends time on writing JSON")
    return ({},)


def patch(site: "Site") -> None:
    """Answer functions that write JSON from text that was made before."""
    from flatout.kept.kept_json import KeptJson

    kept = KeptJson(lambda: site.hit("written from what was kept"), site.stand_back)
    site.wrap("json:dumps", kept.returning)
    site.wrap("json:dump", kept.dumping)


FIX = Fix(
    name="kept-json",
    equivalence=Equivalence.BITWISE,
    phases=(Phase.HOST, Phase.EPOCH_GAP),
    patch=patch,
    choices=choices,
    addresses=("EP004", "HO002", "HO003"),
    switchable=True,
    edit=(Unwritten(reason="what was written before is known while the script runs: write a line for each step"),),
)
