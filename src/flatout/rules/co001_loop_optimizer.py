"""The optimizer updates its tensors one by one, with several small operations for each.

## What it measures

The optimizer's share of the step, and how it works. It fires at 15% of the step, in three cases: torch's for-loop
implementation runs over at least 10 tensors where a fused one is available; most of the optimizer's time is in lines
of the script; or at least 10 optimizers take turns, most of them with fewer tensors.

## Why it matters

A model of 60 tensors under Adam makes about 700 small operations a step. On the classic MNIST guide (2 CPU cores) a
step without data wait is 6.2 times as fast as the whole script, and 8.4 times with a fused optimizer as well.

## What to do

Use `torch.optim.Adam(..., fused=True)` (Adam, AdamW, SGD; Adagrad on the CPU, in newer versions on CUDA, too; not for
sparse or complex gradients), or `foreach=True`. In an optimizer of your own, use `torch._foreach_...` operations on
lists of tensors: `flatout tune` tries that for loops that end in changes in place (`mul_`, `add_`, `lerp_`, `clamp_`
...), whose bits stay the same on the CPU, and `state_dict()` without a deep copy. Where learning rates or decays
differ between parameters, use one optimizer with a parameter group for each setting instead of many optimizers.

## When it is wrong

The result differs in the last bits. With a few large tensors the update is memory-bound and less is gained than stated.
The bound assumes that 80% of a loop's time is saved (76%, 77%, 79%, 87% and 90% for five planted scripts, with fused or
foreach functions), and all of it where many optimizers become one (once, 106%). Checkpoints then carry the flag
`fused`, and set it in the optimizer that loads them.
"""

from dataclasses import replace

from flatout.rules.core.bounds import speedup_without
from flatout.rules.core.example import example, line
from flatout.rules.core.rule import Rule
from flatout.rules.core.sentence import of_step, within
from flatout.rules.facts.user_lines import COMPILED, costs, function_key, hottest, seconds
from flatout.rules.source.loops import in_loop
from flatout.schema.finding import Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Frame, LineCost, OptimizerFacts, Run

MIN_SHARE = 0.15
MIN_TENSORS = MIN_OPTIMIZERS = 10
MOSTLY = 0.5
ONE_TURN = 1  # an optimizer made for each task or image, say: it never steps beside another
COMPILED_SHARE = 0.2  # of the optimizer's time in generated kernels: its loop is over kernels then

GONE, ALL_GONE = 0.8, 1.0  # of the optimizer's time: the rest is the one call's

_Found = tuple[Frame | None, str, tuple[str, ...], float]  # a place, what is there, its fixes, and what goes with them


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """CO001: an optimizer that loops over tensors, or many optimizers of few, are 15% of the step."""
    share = breakdown.share(Phase.OPTIMIZER)
    found = None if share < MIN_SHARE else _many(run) or _loop(run)
    if found is None:
        return None
    place, what, fixes, gone = found
    tensors = sum(facts.num_tensors for facts in run.optimizers)
    return Finding(
        code="CO001",
        name="loop-optimizer",
        phase=Phase.OPTIMIZER,
        share=share,
        max_speedup=speedup_without(share * gone),
        bound_by="the one call that replaces the loop takes a fifth of its time",
        location=place,
        message=f"{of_step(breakdown, breakdown.ms(Phase.OPTIMIZER))} goes to {what}",
        evidence=(Evidence("optimizer", breakdown.ms(Phase.OPTIMIZER), "ms"), Evidence("tensors", tensors, "")),
        fixes=fixes,
    )


def _many(run: Run) -> _Found | None:
    """Return what is to be said of many optimizers of torch's, most of them of few tensors."""
    sizes = sorted(facts.num_tensors for facts in run.optimizers if facts.from_torch and facts.turns != ONE_TURN)
    if len(sizes) < MIN_OPTIMIZERS or sizes[len(sizes) // 2] >= MIN_TENSORS:
        return None
    seen = costs(run, Phase.OPTIMIZER)
    spot = hottest(seen, among=seen)
    what = f"{len(sizes)} optimizers of {sum(sizes)} tensors in all, one after the other. Use a single one, with a "
    place = spot.place if spot is not None else run.optimizers[0].created_at
    return place, what + "parameter group for each setting, and fused=True.", (), ALL_GONE


def _loop(run: Run) -> _Found | None:
    """Return what is to be said of an optimizer that loops over its tensors: the script's own, or one of torch's."""
    loop = next((facts for facts in run.optimizers if _loops(facts)), None)
    own = _own(run)
    if (loop is None and not own) or _compiled(run):
        return None
    spot = hottest(own, among=costs(run, Phase.OPTIMIZER))
    if spot is not None:
        what = f"the script's own optimizer, {within(spot)}. Use torch's with fused=True, or torch._foreach_..."
        return spot.place, what, (), GONE
    if loop is None:
        return None
    what = f"{loop.name or 'the optimizer'}, which updates {loop.num_tensors} tensors in a loop. "
    what += "Set foreach=True." if loop.has_complex else "Set fused=True."
    return loop.created_at, what, ("one-pass-optimizer", "fused-optimizer"), GONE


def _loops(facts: OptimizerFacts) -> bool:
    many = facts.num_tensors >= MIN_TENSORS
    return facts.from_torch and facts.implementation == "loop" and facts.fused_available and many


def _compiled(run: Run) -> bool:
    """Return whether a compiled update runs: kernels that torch.compile wrote are no loop over tensors."""
    kernels = costs(run, Phase.OPTIMIZER, keep=lambda cost: cost.leaf_function == COMPILED or cost.leaf == "triton")
    return seconds(kernels) >= COMPILED_SHARE * seconds(costs(run, Phase.OPTIMIZER)) > 0


def _own(run: Run) -> tuple[LineCost, ...]:
    """Return the optimizer time in user code, when that is most of it: torch's own shows as frames of torch.

    What a loop of the user's calls in torch is the user's, too, outside the functions that also make backward passes.
    """
    training = {function_key(frame) for cost in costs(run, Phase.BACKWARD) for frame in cost.stack}

    def is_own(cost: LineCost) -> bool:
        if not cost.stack or cost.leaf not in ("", "torch"):
            return False
        return not cost.leaf or (function_key(cost.stack[0]) not in training and in_loop(cost.stack[0]))

    own = costs(run, Phase.OPTIMIZER, keep=is_own)
    return own if own and seconds(own) >= MOSTLY * seconds(costs(run, Phase.OPTIMIZER)) else ()


_ADAM = OptimizerFacts(
    name="Adam", num_tensors=62, implementation="loop", fused_available=True, created_at=Frame("train.py", 30, "main")
)
_OWN = (line(0.9, ("optim.py", 17, "Lion.step"), ("train.py", 48, "train"), phase=Phase.OPTIMIZER),)
_KERNELS = tuple(
    line(0.5, *frames, ("optim.py", 17, "Muon.step"), phase=Phase.OPTIMIZER)
    for frames in ((), (("/tmp/torchinductor_me/f4/cf4fx57.py", 24, "Runner.call"),))
)
_TORCH = (line(0.9, ("train.py", 48, "train"), phase=Phase.OPTIMIZER, leaf="torch"),)


def _trains_with_adamw(run: Run) -> bool:
    """Return whether the Trainer's setting, which names AdamW, leaves the training as it is."""
    return any(facts.name == "AdamW" for facts in run.optimizers)


RULE = Rule(
    code="CO001",
    name="loop-optimizer",
    check=check,
    edits=(("foreach",), ("state-copies",)),
    settings={
        "transformers": '`TrainingArguments(optim="adamw_torch_fused")`',
    },
    setting_applies=_trains_with_adamw,
    fires_on=(
        example(step_ms=10, optimizer=3, forward=3, backward=3, optimizers=(_ADAM,), lines=_TORCH),
        example(step_ms=10, optimizer=3, forward=3, backward=3, lines=_OWN),
        example(step_ms=10, optimizer=3, optimizers=(replace(_ADAM, num_tensors=1),) * 40, lines=_TORCH),
    ),
    quiet_on=(
        example(step_ms=10, optimizer=1.4, forward=4, backward=4, optimizers=(_ADAM,), lines=_TORCH),
        example(step_ms=10, optimizer=3, optimizers=(replace(_ADAM, implementation="fused"),), lines=_TORCH),
        example(step_ms=10, optimizer=3, optimizers=(replace(_ADAM, num_tensors=4),), lines=_TORCH),
        example(step_ms=10, optimizer=3, optimizers=(replace(_ADAM, num_tensors=2),) * 3, lines=_TORCH),
        example(step_ms=10, optimizer=1.4, optimizers=(replace(_ADAM, num_tensors=1),) * 40, lines=_TORCH),
        example(step_ms=10, optimizer=3, optimizers=(replace(_ADAM, num_tensors=1, turns=1),) * 40, lines=_TORCH),
        example(step_ms=10, optimizer=3, lines=_KERNELS),
        example(step_ms=10, optimizer=3, optimizers=(_ADAM,), lines=_KERNELS),
        example(step_ms=10, optimizer=3, lines=[line(0.07, ("optim.py", 17, "Lion.step"), phase=Phase.OPTIMIZER)]),
    ),
)
