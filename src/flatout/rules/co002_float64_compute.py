"""The model computes in 64-bit floating point.

## What it measures

Whether most bytes of the model's parameters are float64, and the share of forward and backward in the step. It fires
from 30% on. A float32 model takes no float64 inputs, so it converts them first; what it computes before that is not
seen. The deep run measures what float32 would save: after its last step it times forward and backward of a copy of the
model in both types, alternating; below 2% of the step nothing is reported. Where that is not possible (hooks, several
ranks, more than 256 MB, compiled, arguments other than tensors and plain values, float64 made inside), half of the
computing time is assumed to be saved.

## Why it matters

float64 needs twice the bytes and halves the width of every vector instruction on a CPU; on GPUs its rate is 1/2 (data
center) to 1/64 (consumer) of float32. It is usually unintended: numpy arrays are float64, and `torch.from_numpy` keeps
that.

## What to do

Find where the type comes from (`torch.set_default_dtype`, `.double()`, a numpy array) and convert once:
`torch.from_numpy(x).float()`, `model.float()`. `flatout tune` tries `float32-compute`, which computes the model in
float32 and leaves weights, optimizer and data as they are.

## When it is wrong

Simulation, physics and some optimization problems need the precision. Results change beyond rounding.
"""

from flatout.analysis.judge import FLOOR
from flatout.rules.core.bounds import speedup_without
from flatout.rules.core.example import example
from flatout.rules.core.rule import Rule
from flatout.rules.core.sentence import of_step
from flatout.schema.finding import Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Causes, LoaderFacts, ModelFacts, PrecisionTrial, Run
from flatout.units import format_share

MIN_SHARE = 0.30
SAVED = 0.5  # where it was not measured
LEAST = 3  # passes of each type


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """CO002: float64 in a model whose computing is 30% of the step."""
    model = next((model for model in run.models if _is_double(model)), None)
    share = breakdown.share(Phase.FORWARD) + breakdown.share(Phase.BACKWARD)
    if model is None or share < MIN_SHARE:
        return None
    trial = _measured(run, model)
    saved = 1 - trial.float32_s / trial.float64_s if trial else SAVED
    at_most = speedup_without(saved * share)
    if at_most < FLOOR:
        return None
    ms = breakdown.ms(Phase.FORWARD) + breakdown.ms(Phase.BACKWARD)
    loaded = any("float64" in dtype for loader in run.loaders for dtype in loader.batch_dtypes)
    return Finding(
        code="CO002",
        name="float64-compute",
        phase=Phase.FORWARD,
        share=min(1.0, share),
        max_speedup=at_most,
        bound_by=f"in float32 {format_share(1 - saved)} of that time stays",
        location=next((loader.created_at for loader in run.loaders if loader.is_training), None) if loaded else None,
        message=f"{of_step(breakdown, ms)} is forward and backward in float64 ({model.name or 'the model'}"
        f"{', whose batches come as float64 from the loader' if loaded else ''}). "
        f"Convert model and data to float32 once{_there(trial) if trial else ''}.",
        evidence=(
            Evidence("forward and backward", ms, "ms"),
            Evidence("parameters", model.num_elements, ""),
            *_compared(trial),
        ),
        fixes=("float32-compute",),
    )


def _measured(run: Run, model: ModelFacts) -> PrecisionTrial | None:
    trial = run.causes.precision if run.causes else None
    known = trial is not None and trial.model == model.name and trial.n >= LEAST and trial.float64_s > 0
    return trial if known else None


def _there(trial: PrecisionTrial) -> str:
    return f": a pass then takes {format_share(trial.float32_s / trial.float64_s)} of its time (n={trial.n})"


def _compared(trial: PrecisionTrial | None) -> tuple[Evidence, ...]:
    if trial is None:
        return ()
    pairs = (("one pass in float64", trial.float64_s), ("in float32", trial.float32_s))
    return tuple(Evidence(label, seconds * 1000, "ms") for label, seconds in pairs)


def _is_double(model: ModelFacts) -> bool:
    return model.dtypes[:1] == ("float64",)  # of most bytes: one number of it in a model of float32 changes no type


_DOUBLE = ModelFacts(name="Net", num_elements=100_000, dtypes=("float64",), input_dtypes=("float64",))
_CONVERTS = ModelFacts(name="Net", dtypes=("float32",), input_dtypes=("float64", "int64"))
_SINGLE = ModelFacts(name="Net", dtypes=("float32",), input_dtypes=("float32",))
_FASTER = Causes(precision=PrecisionTrial(model="Net", n=7, float64_s=0.08, float32_s=0.02))
_NO_FASTER = Causes(precision=PrecisionTrial(model="Net", n=7, float64_s=0.08, float32_s=0.079))

RULE = Rule(
    code="CO002",
    name="float64-compute",
    check=check,
    fires_on=(
        example(step_ms=100, forward=30, backward=50, models=(_DOUBLE,)),
        example(step_ms=100, forward=30, backward=50, models=(_DOUBLE,), causes=_FASTER),
        example(
            step_ms=100, forward=15, backward=20, models=(_DOUBLE,), loaders=(LoaderFacts(batch_dtypes=("float64",)),)
        ),
    ),
    quiet_on=(
        example(step_ms=100, forward=9, backward=20, models=(_DOUBLE,)),
        example(step_ms=100, forward=30, backward=50, models=(_DOUBLE,), causes=_NO_FASTER),
        example(step_ms=100, forward=30, backward=50, models=(_SINGLE,)),
        example(step_ms=100, forward=15, backward=20, models=(_CONVERTS,)),
    ),
)
