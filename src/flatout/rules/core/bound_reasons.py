"""The reason why a bound is not what the share of its finding alone would give: said beside both, or not at all."""

from dataclasses import replace

from flatout.analysis.headroom_stages import gain_between
from flatout.rules.core.bounds import speedup_on_freed_cores, speedup_without
from flatout.rules.facts.loader_facts import training_loader
from flatout.schema.facts import HELD_INPUT
from flatout.schema.finding import Ceiling, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Run
from flatout.units import format_ratio

__all__ = ["with_reason"]

FITS = 1.1  # share and bound differ by less: rounded figures that a reader takes for the same
NOTEWORTHY = 1.005  # smaller bounds are not shown


def with_reason(finding: Finding, run: Run, headroom: tuple[Ceiling, ...]) -> Finding:
    """Return the finding with `bound_by` where its share and its bound differ by a tenth or more, and without it else.

    A rule, or the ceiling that lowered the bound, may have said the reason already.
    """
    plain = speedup_without(finding.share)
    factor = finding.max_speedup / plain
    shown = finding.share > 0 and finding.max_speedup >= NOTEWORTHY
    if not shown or 1 / FITS < factor < FITS:
        return replace(finding, bound_by="") if finding.bound_by else finding
    if finding.bound_by:
        return finding
    found = _more(finding, run, headroom) if factor > 1 else _less(finding, run)
    return replace(finding, bound_by=found)


def _more(finding: Finding, run: Run, headroom: tuple[Ceiling, ...]) -> str:
    """Return why more goes than the share."""
    loader = training_loader(run)
    if finding.phase is not Phase.INPUT:
        return "what follows it gets shorter, too"
    if speedup_on_freed_cores(run, loader, 1.0) >= 0.9 * finding.max_speedup:
        return f"workers and the training share {run.environment.num_cpus} cores"
    held = gain_between(headroom, "", HELD_INPUT)
    if held is not None and held.sure:
        return f"measured: steps that replay one batch are {format_ratio(held.speedup)} as fast"
    if loader is not None and loader.num_workers:
        return "a step lasts as long as its workers need for a batch"
    return "what follows it gets shorter, too"


def _less(finding: Finding, run: Run) -> str:
    """Return why less goes than the share."""
    loader = training_loader(run)
    if finding.phase is Phase.INPUT and loader is not None and loader.num_workers:
        return "workers do the rest while the step runs"
    return "a part of that work stays"
