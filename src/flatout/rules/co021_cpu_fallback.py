"""The device lacks an operation of the step, so its tensors are copied to the CPU and back.

## What it measures

torch's warning that an operation falls back to the CPU (heard in the deep run, with the line that called it), and the
time of the steps below these lines. It fires at 5% of the step. Where nearly a whole phase is below such a line, as
below `loss.backward()`, the operation's part of it is not known, and no gain is stated.

## Why it matters

The operation waits for all that was queued, copies its inputs to the CPU, computes there and copies the result back;
the device is idle meanwhile. On Apple's devices it happens with `PYTORCH_ENABLE_MPS_FALLBACK=1`, and for some
operations in any case; devices with a package of their own do the same.

## What to do

Write it with operations that the device has (it may lack parts of `torch.linalg`, for instance), do it once before the
loop, or in the loader, where it costs the step nothing. A newer torch may have it.

## When it is wrong

The line's time includes the wait for work queued before, so the gain may be smaller. A script that filters warnings
hides this one, and then nothing is reported. A fallback in the backward pass is reported at the line that called the
backward pass.
"""

from collections import defaultdict

from flatout.rules.core.bounds import speedup_without
from flatout.rules.core.example import example, line
from flatout.rules.core.rule import Rule
from flatout.rules.core.sentence import at, of_step
from flatout.rules.facts.user_lines import AROUND_THE_LOOP, COMPUTING, MIN_SAMPLES, costs, seconds
from flatout.schema.finding import Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Causes, Fallback, Frame, LineCost, Run

MIN_SHARE = 0.05
PHASES = (*COMPUTING, Phase.HOST)


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """CO021: lines whose operations the device leaves to the CPU take more than a twentieth of the step."""
    left = [each for each in (run.causes or Causes()).fallbacks if each.place is not None]
    places = frozenset((each.place.file, each.place.line) for each in left if each.place is not None)
    parts = {phase: _below(run, phase, places) for phase in PHASES}
    shares = {phase: _share(run, breakdown, phase, lines) for phase, lines in parts.items()}
    share = sum(shares.values())
    worst = _worst([cost for lines in parts.values() for cost in lines], left)
    if worst is None or worst.place is None or share < MIN_SHARE:
        return None
    known = not any(_nearly_all(run, phase, lines) for phase, lines in parts.items())
    names = ", ".join(dict.fromkeys(each.operation for each in left if each.operation)) or "an operation"
    return Finding(
        code="CO021",
        name="cpu-fallback",
        phase=max(shares, key=shares.__getitem__),
        share=share,
        max_speedup=speedup_without(share) if known else 1.0,
        location=worst.place,
        message=f"{of_step(breakdown, share * breakdown.mean_ms)} is spent at lines that call operations which "
        f"{worst.device} leaves to the CPU: {names}, mostly in {at(worst.place)}. The device waits each time. Use "
        "operations that the device supports, or do this before the loop.",
        evidence=(Evidence("operations left to the CPU", len(left), ""),),
        fixes=(),
    )


def _below(run: Run, phase: Phase, places: frozenset[tuple[str, int]]) -> tuple[LineCost, ...]:
    return costs(run, phase, keep=lambda cost: any((frame.file, frame.line) in places for frame in cost.stack))


def _share(run: Run, breakdown: Breakdown, phase: Phase, lines: tuple[LineCost, ...]) -> float:
    whole = seconds(costs(run, phase))
    return breakdown.share(phase) * seconds(lines) / whole if whole > 0 else 0.0


def _nearly_all(run: Run, phase: Phase, lines: tuple[LineCost, ...]) -> bool:
    return bool(lines) and seconds(lines) >= AROUND_THE_LOOP * seconds(costs(run, phase))


def _worst(lines: list[LineCost], left: list[Fallback]) -> Fallback | None:
    """Return what was left to the CPU at the line that most time is below, None where all were hardly seen."""
    taken: dict[tuple[str, int], float] = defaultdict(float)
    for cost in lines:
        for place in {(frame.file, frame.line) for frame in cost.stack}:
            taken[place] += cost.seconds
    if sum(cost.samples for cost in lines) < MIN_SAMPLES:
        return None
    return max(left, key=lambda each: taken[each.place.file, each.place.line] if each.place else 0.0)


_PLACE = Frame("model.py", 20, "Net.forward")
_SVD = Fallback(place=_PLACE, operation="aten::linalg_svd", device="MPS")
_LINES = (
    line(0.6, ("model.py", 20, "Net.forward"), ("train.py", 44, "train"), phase=Phase.FORWARD, leaf="torch"),
    line(0.6, ("model.py", 22, "Net.forward"), ("train.py", 44, "train"), phase=Phase.FORWARD, leaf="torch"),
)
_XPU = Fallback(place=_PLACE, device="XPU")

RULE = Rule(
    code="CO021",
    name="cpu-fallback",
    check=check,
    fires_on=(
        example(step_ms=100, forward=50, backward=40, causes=Causes(lines=_LINES, fallbacks=(_SVD,), num_steps=40)),
        example(
            step_ms=100, forward=50, backward=40, causes=Causes(lines=_LINES, fallbacks=(_XPU, _SVD), num_steps=40)
        ),
    ),
    quiet_on=(
        example(step_ms=100, forward=50, backward=40, causes=Causes(lines=_LINES, num_steps=40)),
        example(step_ms=100, forward=8, backward=82, causes=Causes(lines=_LINES, fallbacks=(_SVD,), num_steps=40)),
        example(step_ms=100, forward=50, backward=40, causes=Causes(fallbacks=(_SVD,), num_steps=40)),
        example(
            step_ms=100,
            forward=50,
            backward=40,
            causes=Causes(lines=_LINES, fallbacks=(Fallback(operation="aten::svd", device="MPS"),), num_steps=40),
        ),
    ),
    preview=True,
    no_cure="Which operations of the device give the same result depends on the device and the numbers.",
)
