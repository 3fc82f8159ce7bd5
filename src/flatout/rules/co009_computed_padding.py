"""A large part of what the model computes is padding.

## What it measures

The masks that the script passes to its model in training: `attention_mask`, `key_padding_mask`, or the indices of an
embedding with a `padding_idx` that feeds recurrent or attention layers (unless they are packed). It fires when
positions that are padding in every row of their batch take at least 10% of the step; or when 45% of all positions are
padding, more than random lengths leave in most data, and take 20% of it.

Where the source shows which line pads every sample to one length, that line is named, else the call of the model.

## Why it matters

Layers compute every position of a batch, masked or not: the mask only keeps the result out. The time depends on the
longest sequence of each batch, or on the fixed length that all are padded to.

## What to do

Pad each batch to its own longest sequence, not to a maximum for all: the same results from shorter batches. Beyond
that, put sequences of similar length into one batch (sort, or use a sampler by length), or pack several into one row.
`flatout tune` tries the former at the top of `forward`, where an argument of it is the mask; it is not kept where
outputs have a row for each position, or where dropout draws.

## When it is wrong

Changing shapes make `torch.compile` recompile and cudnn search again: round lengths up to a few sizes. Sorting by
length changes which samples share a batch. Attention that skips masked blocks computes less than is counted here.
"""

from dataclasses import replace

from flatout.rules.core.bounds import speedup_without
from flatout.rules.core.example import example
from flatout.rules.core.rule import Rule
from flatout.rules.core.sentence import at
from flatout.rules.source.padding_lines import padding_line
from flatout.schema.finding import Argument, Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Causes, Frame, ModelFacts, Padding, Run
from flatout.units import format_ms, format_share

MIN_PADDED = 0.45  # lengths drawn evenly between nothing and a maximum leave half, batches of 16 to their longest 47%
MIN_SHARE = 0.20
MIN_SHARE_CUT_OFF = 0.10
MIN_BATCHES = 8
SEQUENTIAL = ("LSTM", "GRU", "RNN", "NonDynamicallyQuantizableLinear")  # the last: the leaf of nn.MultiheadAttention


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """CO009: 45% of the positions are padding, and a fifth of the step is spent on them."""
    padding = next(iter(run.causes.padding if run.causes else ()), None)
    if padding is None or padding.batches < MIN_BATCHES or padding.positions <= 0 or not _computes_all(run, padding):
        return None
    computing = breakdown.share(Phase.FORWARD) + breakdown.share(Phase.BACKWARD)
    padded, cut_off = padding.padded / padding.positions, padding.cut_off / padding.positions
    same = cut_off * computing >= MIN_SHARE_CUT_OFF
    if not same and (padded < MIN_PADDED or padded * computing < MIN_SHARE):
        return None
    share = min(1.0, computing * (cut_off if same else padded))
    ms = share * breakdown.mean_ms
    called = f" called in {at(padding.place)}" if padding.place else ""
    padded_at = padding_line(run) if same else None
    there = f", padded to one length in {at(padded_at)}," if padded_at else ""
    advice = (
        f"{format_share(cut_off)} are padding in every row: pad each batch to its own longest row, for the same "
        "results (dropout draws other numbers)"
        if same
        else "Put sequences of like length into one batch"
    )
    return Finding(
        code="CO009",
        name="computed-padding",
        phase=Phase.FORWARD,
        share=share,
        max_speedup=speedup_without(share),
        location=padded_at or padding.place,
        message=f"{format_share(padded)} of the positions in the batches{there} are padding, by the {padding.source} "
        f"(n={padding.batches} batches), and the model{called} computes them all. {advice}: that can save about "
        f"{format_ms(ms)} of {format_ms(breakdown.mean_ms)} a step.",
        evidence=(
            Evidence("share of padding", padded, ""),
            Evidence("of it in every row", cut_off, ""),
            Evidence("batches", padding.batches, ""),
        ),
        fixes=(),
        arguments=_arguments(padding),
    )


def _arguments(padding: Padding) -> tuple[Argument, ...]:
    called = padding.place
    where = (Argument("file", called.file), Argument("line", called.line)) if called is not None else ()
    return (Argument("source", padding.source), *where)


def _computes_all(run: Run, padding: Padding) -> bool:
    """Return whether layers run over the positions: an embedding alone, summed up, costs next to nothing there."""
    if padding.source != "padding_idx":
        return True
    return any(name in model.module_types for model in run.models for name in SEQUENTIAL)


_AT = Frame("train.py", 44, "train")
_MASK = Padding(source="attention_mask", batches=40, positions=100_000, padded=55_000, cut_off=20_000, place=_AT)
_INDEX = replace(_MASK, source="padding_idx", padded=47_000, cut_off=0)
_LSTM = ModelFacts(name="Tagger", module_types={"Embedding": 1, "LSTM": 2, "Linear": 1})
_BAG = ModelFacts(name="Bag", module_types={"Embedding": 1, "Linear": 2})


def _with(padding: Padding) -> Causes:
    return Causes(num_steps=60, padding=(padding,))


RULE = Rule(
    code="CO009",
    name="computed-padding",
    check=check,
    fires_on=(
        example(step_ms=100, forward=30, backward=60, causes=_with(_MASK)),
        example(step_ms=100, forward=30, backward=60, causes=_with(_INDEX), models=(_LSTM,)),
    ),
    quiet_on=(
        example(step_ms=100, forward=30, backward=60, causes=_with(replace(_MASK, padded=44_000, cut_off=10_000))),
        example(step_ms=100, forward=10, backward=20, input=60, causes=_with(_MASK)),
        example(step_ms=100, forward=15, backward=26, input=50, causes=_with(_INDEX), models=(_LSTM,)),
        example(step_ms=100, forward=30, backward=60, causes=_with(_INDEX), models=(_BAG,)),
        example(step_ms=100, forward=30, backward=60, causes=_with(replace(_MASK, batches=7))),
        example(step_ms=100, forward=30, backward=60, models=(_LSTM,)),
    ),
    edits=(("shorter-batches",),),
)
