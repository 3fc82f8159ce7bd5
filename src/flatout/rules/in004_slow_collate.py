"""Collating samples into a batch takes long.

## What it measures

The time in `collate_fn`, as a share of all the work for one batch (samples, collate, sampler), times the share of the
step that waits for input. Where these times were not measured, the lines that the sampler saw give the share. It fires
at 10% of the step for the script's own collate function. For the default one it fires at 15%, and only when collating
is at least half of the work for a batch. Where samples then hold at least 8 Python numbers, the line of the dataset
that returns them is named. Rows of an array in memory are left to IN006, unless the script's own collate function takes
longer than the samples.

## Why it matters

The collate function runs once a batch on one thread, and often loops over samples in Python: padding, converting lists
to tensors, building dictionaries key by key.

## What to do

Let the dataset return tensors, not lists of numbers (the default collate makes one tensor for every number of a list).
Pad with `torch.nn.utils.rnn.pad_sequence`, or fill one array allocated for the whole batch. `flatout tune` tries
`np.stack` before `torch.tensor` of a list of arrays, and `pad_sequence` for a loop that does nothing but fill rows.

## When it is wrong

Samples that are views of a larger array are copied here, so their cost appears here and not where they are made.
"""

import ast
from dataclasses import replace

from flatout.rules.core.bounds import speedup_of_input
from flatout.rules.core.example import example, line
from flatout.rules.core.rule import Rule
from flatout.rules.core.sentence import at, of_step, within
from flatout.rules.facts.input_stages import COLLATE
from flatout.rules.facts.loader_facts import fraction_of_batch, picks_rows, training_loader
from flatout.rules.facts.user_lines import Hotspot, costs, hottest, seconds
from flatout.rules.source.source_code import enclosing_function
from flatout.schema.finding import Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Frame, LoaderFacts, Run

MIN_SHARE = 0.10
MIN_SHARE_DEFAULT = 0.15
MIN_FRACTION_DEFAULT = 0.5
MANY_NUMBERS = 8  # of a sample, that the default function makes tensors of


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """IN004: collating is a tenth of the step."""
    loader = training_loader(run)
    if loader is None:
        return None
    own = not loader.default_collate and loader.collate_s > loader.sample_s
    if picks_rows(run, loader) and not own:
        return None  # IN006 reports rows of an array that are gathered one by one
    fraction = fraction_of_batch(loader, loader.collate_s) or _fraction_seen(run, loader)
    share = breakdown.share(Phase.INPUT) * fraction
    if share < (MIN_SHARE_DEFAULT if loader.default_collate else MIN_SHARE):
        return None
    if loader.default_collate and fraction < MIN_FRACTION_DEFAULT:
        return None
    process = "worker" if loader.num_workers > 0 else "main"
    lines = costs(run, Phase.INPUT, process=process, stages=("collate",))
    spot = None if loader.default_collate else hottest(lines, among=lines)
    listing = _returns_numbers(loader)
    place = spot.place if spot else listing or loader.created_at
    clocked = (
        (Evidence("collate", loader.collate_s * 1000, "ms"), Evidence("batches measured", loader.fetches, ""))
        if loader.fetches
        else ()
    )
    return Finding(
        code="IN004",
        name="slow-collate",
        phase=Phase.INPUT,
        share=share,
        max_speedup=speedup_of_input(run, breakdown, loader, fraction, headroom),
        location=place,
        message=f"{of_step(breakdown, share * breakdown.mean_ms)} is spent collating samples into a "
        f"batch{_how(loader, spot, listing)}. Return tensors from the dataset, and stack or pad the whole batch in one "
        "call.",
        evidence=(Evidence("share of the loading", fraction, ""), *clocked),
        fixes=("compiled-input", "compiled-python"),
    )


def _returns_numbers(loader: LoaderFacts) -> Frame | None:
    """Return the line of the dataset that returns lists of Python numbers to the default collate function."""
    prefix = loader.prefix
    if not loader.default_collate or prefix is None or prefix.made_at is None or prefix.numbers < MANY_NUMBERS:
        return None
    function = enclosing_function(prefix.made_at)
    returns = [node.lineno for node in ast.walk(function) if isinstance(node, ast.Return)] if function else []
    return replace(prefix.made_at, line=returns[-1]) if returns else prefix.made_at


def _how(loader: LoaderFacts, spot: Hotspot | None, listing: Frame | None) -> str:
    if spot:
        return f", in {within(spot)}"
    if listing and loader.prefix:
        each = f"{loader.prefix.numbers} Python numbers a sample"
        return f": {at(listing)} returns {each}, and the default function makes a tensor of each position"
    return " with the default function" if loader.default_collate else ""


def _fraction_seen(run: Run, loader: LoaderFacts) -> float:
    """Return the share of the loading that the sampler saw in collate, for loaders whose stages were not timed."""
    process = "worker" if loader.num_workers > 0 else "main"
    whole = seconds(costs(run, Phase.INPUT, process=process, stages=("sample", "collate", "sampler")))
    return seconds(costs(run, Phase.INPUT, process=process, stages=("collate",))) / whole if whole > 0 else 0.0


_OWN = LoaderFacts(
    is_training=True, batch_size=32, default_collate=False, sample_s=0.01, collate_s=0.03, sampler_s=0.0, fetches=40
)
_DEFAULT = LoaderFacts(is_training=True, batch_size=32, sample_s=0.01, collate_s=0.03, fetches=40)
_LINES = (line(1.2, ("text.py", 20, "pad"), stage="collate"), line(0.4, ("text.py", 5, "read"), stage="sample"))

RULE = Rule(
    code="IN004",
    name="slow-collate",
    check=check,
    edits=(("one-array",), ("pad-sequence",), ("element-writes",), ("list-lookups",)),
    stage=COLLATE,
    takes_whole_stage=True,
    settings={
        "transformers": "the `data_collator` that is handed to the Trainer",
    },
    fires_on=(
        example(step_ms=100, input=40, forward=50, loaders=(_OWN,), lines=_LINES),
        example(step_ms=100, input=40, forward=50, loaders=(_DEFAULT,)),
    ),
    quiet_on=(
        example(step_ms=100, input=13, forward=70, loaders=(_OWN,), lines=_LINES),
        example(step_ms=100, input=19, forward=70, loaders=(_DEFAULT,)),
        example(step_ms=100, input=40, forward=50),
    ),
)
