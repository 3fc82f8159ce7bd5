"""Whether training results stayed equal: the losses of the script as it is and under the recipe, over each other."""

from typing import Any

from flatout.report.tune_summary import IN_WORDS
from flatout.schema.report import Report
from flatout.schema.trial import Equality, Equivalence, Trial, Verdict

__all__ = ["losses_chart", "results_sentence"]

_BROAD = 5
"""Width of the line below, so that it is seen where the other one lies on it."""


def results_sentence(report: Report) -> str:
    """Return what was compared and what came of it, "" where no losses of a kept fix are known."""
    trial = _compared(report)
    if trial is None or trial.equality is None:
        return ""
    labels = [selection.label for selection in (*trial.base, trial.candidate.selection)]
    return f"{_verdict(trial.equality)} Compared from the same seeds, step by step: {' + '.join(labels)}."


def losses_chart(report: Report) -> dict[str, Any] | None:
    """Return the chart of both losses over the compared steps, None where there is nothing to draw."""
    trial = _compared(report)
    if trial is None or trial.equality is None:
        return None
    before, after = trial.equality.losses, trial.equality.candidate_losses
    number = min(len(before), len(after))
    return {
        "place": "chart-results",
        "caption": f"Loss of the first {number:,} compared steps: the script as it is (broad), and under the recipe",
        "x": "step",
        "y": "",
        "xs": list(range(number)),
        "series": [
            {"label": "as it is", "values": [float(f"{loss:.6g}") for loss in before[:number]], "width": _BROAD},
            {"label": "under the recipe", "values": [float(f"{loss:.6g}") for loss in after[:number]]},
        ],
    }


def _compared(report: Report) -> Trial | None:
    """Return the last kept trial: its fix was compared on top of all that were kept before it."""
    kept = [trial for trial in report.trials if trial.verdict is Verdict.KEPT]
    equality = kept[-1].equality if kept else None
    return kept[-1] if equality is not None and min(len(equality.losses), len(equality.candidate_losses)) > 1 else None


def _verdict(found: Equality) -> str:
    number = min(len(found.losses), len(found.candidate_losses))
    pairs = list(zip(found.losses[:number], found.candidate_losses[:number], strict=True))
    different = sum(one != other for one, other in pairs)
    if not found.equal:
        return f"Results were not compared with a promise: it is {IN_WORDS[found.claimed]}."
    if found.claimed is Equivalence.BITWISE and found.deterministic:
        return (
            f"Identical results: the losses and all weights of {found.num_steps:,} steps are the same to the last bit."
        )
    scale = max((abs(one) for one, _ in pairs), default=0.0)
    most = max((abs(one - other) for one, other in pairs), default=0.0) / scale if scale else 0.0
    return (
        f"Results as promised ({IN_WORDS[found.claimed]}): the losses of {different:,} of {number:,} steps differ, "
        f"by at most {most:.1g} of the largest."
    )
