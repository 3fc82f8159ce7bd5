"""Serve an edit of the script's source in place of its files, which stay as they are.

## What it does

It takes a diff: one that you, a colleague or a coding agent has written (`flatout tune --edit change.diff train.py`),
or the change of a line that a finding names (`gc.collect()` left out of the loop, `torch.no_grad()` around the
validation). Every process of the training that runs or imports one of its files runs the edited text instead: the
script itself, its modules, workers, ranks of `torchrun`. Tracebacks, `inspect.getsource` and debuggers show the edited
lines. No file is written, no `.pyc` either.

The edit is tried as every fix is: timed against the script as it stands, its results compared, kept in the recipe only
where it is faster and as equal as its class says. The recipe holds the diff, bound to what its files held: once one of
them has changed, `flatout run` leaves the edit out and says so. `flatout patch` writes it into your files for good.

## Why it helps

What slows a script down is often a line of its own, which no setting cures: a loop over rows, a value read back in
every step, garbage collected by hand. Without its `gc.collect()`, `dialogue_pairs` of `benchmarks/planted` trains 5.3x
as fast (changed by hand; n=1 diagnosis, 2 cores of an AMD EPYC, torch 2.13; `python benchmarks/planted.py`).

## How equal

BITWISE is tried first: every loss and weight to the last bit. Where an edit does not keep that, it is held to the class
that `--equal` allows, and the first thing that differs is named with its step.

## When it is wrong

An edit is code. `flatout run` runs it only where your own `flatout tune` made the recipe, which a key in your state
folder shows; one from somebody else is left out with one line, until you have read it (`flatout patch`) and said yes
(`flatout run --allow-edits`). New files, deleted and renamed files cannot be served, and neither can what runs a script
in a way of its own (`coverage run`, `python -m pdb`): there the edit does nothing, and the trial says so.
"""

from typing import Any

from flatout.fixes.core.edit import OwnDiff
from flatout.fixes.core.fix import Fix, Unfit
from flatout.fixes.core.site import Site
from flatout.fixes.source.served_files import served_here
from flatout.schema.phase import Phase
from flatout.schema.run import Run
from flatout.schema.trial import EDITED_SOURCE, Equivalence

__all__ = ["FIX"]


def edited_source(site: Site, *, edit: str, diff: str, files: dict[str, Any]) -> None:
    """Count what is served of the edit; the serving itself began with the process, before the script."""
    del diff, files
    served_here().follow(edit, site.hit, site.fail)


def choices(run: Run) -> Unfit:
    """Name no settings: an edit comes from a diff, or from a finding."""
    return Unfit("no edit of the source was given: flatout tune --edit change.diff")


FIX = Fix(
    name=EDITED_SOURCE,
    equivalence=Equivalence.BITWISE,
    phases=tuple(Phase),
    patch=edited_source,
    choices=choices,
    edit=(OwnDiff(),),
)
