"""What must be the same under every class of equality: samples, modes, steps, settings, counts, checkpoints.

Each check compares two executions over the steps that both made and says in words what differs first.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from flatout.analysis.samples import Difference, Steps, first_difference, inputs_check, kept_check, samples_check
from flatout.analysis.traces import Interval, Trace
from flatout.schema.trial import Check

__all__ = ["common", "finite_check", "invariants"]


def common(one: Trace, other: Trace) -> int:
    """Return the number of steps that both made."""
    return min(len(one.intervals), len(other.intervals))


def invariants(
    baseline: Trace,
    candidate: Trace,
    *,
    boundaries: bool = True,
    recording: bool = True,
    nudged: Trace | None = None,
) -> Iterator[Check]:
    """Yield the checks of everything that no class may change; `boundaries`: batches are cut at the same places.

    `recording`: calls record gradients as they did, and as many are made on the same samples in a step; False where
    gradients are compared so closely that this tells. With
    `nudged`, inputs of modules that depend on the weights may have other values.
    """
    num = common(baseline, candidate)
    pair: tuple[Steps, Steps] = (baseline.intervals[:num], candidate.intervals[:num])
    pair = pair if recording else _alike_recorded(*map(_without_repeats, pair))
    yield samples_check(*pair)
    yield _steps(*pair, boundaries=boundaries)
    yield inputs_check(*pair, nudged.intervals[:num] if nudged is not None else ())
    yield _modes(*pair)
    yield _evaluations(*pair)
    yield _settings(*pair)
    yield _clipping(*pair)
    yield _missing(*pair)
    yield _still(*pair)
    yield kept_check(*pair)
    yield _random(*pair)
    yield _end(baseline, candidate)
    yield _checkpoint(baseline, candidate)
    yield _whole_epoch(baseline, candidate)


def _without_repeats(steps: Steps) -> Steps:
    """Return the steps, of calls of one module on the same samples in a step one alone, with gradients if one had."""
    found = []
    for step in steps:
        calls: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        for call in step.calls:
            key = (*call[:3], *call[4:])
            calls[key] = (*call[:3], max(call[3], calls.get(key, call)[3]), *call[4:])
        found.append(replace(step, calls=tuple(calls.values())) if len(calls) < len(step.calls) else step)
    return found


def _alike_recorded(baseline: Steps, candidate: Steps) -> tuple[Steps, Steps]:
    """Return the steps, with calls of the candidate's that record no gradients any more told as they were before.

    A step in which anything else about its
    calls differs is left as it is.
    """
    steps = []
    for one, other in zip(baseline, candidate, strict=True):
        alike = [_but_recording(call) for call in one.calls] == [_but_recording(call) for call in other.calls]
        less = alike and all(now[3] <= before[3] for before, now in zip(one.calls, other.calls, strict=True))
        calls = [(*now[:3], before[3], *now[4:]) for before, now in zip(one.calls, other.calls, strict=False)]
        steps.append(replace(other, calls=tuple(calls)) if less else other)
    return baseline, tuple(steps)


def _but_recording(call: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return module, mode and number of samples of a call."""
    return (*call[:3], call[4])


# -- steps ------------------------------------------------------------------------------------------------------


def _steps(baseline: Steps, candidate: Steps, *, boundaries: bool) -> Check:
    def differences() -> Iterator[Difference]:
        for one, other in zip(baseline, candidate, strict=True):
            if one.optimizer != other.optimizer:
                yield one.step, f"step {one.step} is made by optimizer {other.optimizer}, not {one.optimizer}"
            wanted, found = _worked(one), _worked(other)
            if wanted != found and (boundaries or sum(wanted) != sum(found)):
                few = sum(found) > sum(wanted)
                fault = "an optimizer step is missing" if few else "there is an optimizer step too many"
                seen, usual = f"{len(found)} batches ({sum(found)} samples)", f"{len(wanted)} ({sum(wanted)})"
                yield one.step, f"step {one.step} is made on {seen}, not {usual}: {fault}"
            if boundaries and len(one.losses) != len(other.losses):
                yield one.step, f"step {one.step} has {len(other.losses)} backward passes, not {len(one.losses)}"

    return first_difference("optimizer steps", differences(), f"{len(baseline)} steps")


def _worked(interval: Interval) -> list[int]:
    """Return the samples of the batches that modules were called with gradients, else of those that were loaded."""
    called = [call[4] for call in interval.calls if call[3]]
    return called or [batch[3] for batch in interval.batches]


def _modes(baseline: Steps, candidate: Steps) -> Check:
    def differences() -> Iterator[Difference]:
        for one, other in zip(baseline, candidate, strict=True):
            wanted, found = ({call[:4] for call in steps.calls} for steps in (one, other))
            for name, training, parts, gradients in sorted(found - wanted):
                usual = next((call for call in sorted(wanted) if call[0] == name and call[3] == gradients), None)
                if usual is not None:
                    yield (
                        one.step,
                        (
                            f"in step {one.step} {training} of the {parts} parts of {name} are in training mode, "
                            f"not {usual[1]} of {usual[2]}"
                        ),
                    )

    return first_difference("training mode", differences())


def _evaluations(baseline: Steps, candidate: Steps) -> Check:
    def differences() -> Iterator[Difference]:
        for one, other in zip(baseline, candidate, strict=True):
            wanted, found = (sum(call[4] for call in steps.calls if not call[3]) for steps in (one, other))
            if wanted != found:
                yield one.step, f"before step {one.step} {found} samples are evaluated, not {wanted}"

    seen = sum(not call[3] for interval in candidate for call in interval.calls)
    return first_difference("evaluations", differences(), f"{seen} forward passes without gradients")


def _settings(baseline: Steps, candidate: Steps) -> Check:
    def differences() -> Iterator[Difference]:
        for one, other in zip(baseline, candidate, strict=True):
            if one.groups == other.groups:
                continue
            if len(one.groups) != len(other.groups):
                yield (
                    one.step,
                    f"optimizer {one.optimizer} has {len(other.groups)} parameter groups, not {len(one.groups)}",
                )
            for wanted, found in zip(one.groups, other.groups, strict=False):
                for name in wanted:
                    if found.get(name) != wanted[name]:
                        yield (
                            one.step,
                            f"the {_spoken(name)} of step {one.step} is {found.get(name)}, not {wanted[name]}",
                        )

    rates = len({str(group.get("lr")) for interval in candidate for group in interval.groups})
    return first_difference("learning rate", differences(), f"{rates} different rates")


def _spoken(name: str) -> str:
    return {"lr": "learning rate", "num_params": "number of parameters"}.get(name, name.replace("_", " "))


def _clipping(baseline: Steps, candidate: Steps) -> Check:
    def differences() -> Iterator[Difference]:
        for one, other in zip(baseline, candidate, strict=True):
            if [clip[:2] for clip in one.clips] != [clip[:2] for clip in other.clips]:
                yield one.step, f"step {one.step} clips its gradients {len(other.clips)} times, not {len(one.clips)}"
            for wanted, found in zip(one.clips, other.clips, strict=False):
                if wanted[2] <= wanted[1] * 1.001 < found[2] / 1.001 and wanted[0] == "clip_grad_norm_":
                    yield (
                        one.step,
                        f"the norm of the clipped gradients of step {one.step} is {found[2]:.4g}, not {wanted[2]:.4g}",
                    )

    seen = sum(len(interval.clips) for interval in candidate)
    return first_difference("gradient clipping", differences(), f"{seen} calls")


def _missing(baseline: Steps, candidate: Steps) -> Check:
    def differences() -> Iterator[Difference]:
        for one, other in zip(baseline, candidate, strict=True):
            if one.missing != other.missing:
                yield (
                    one.step,
                    f"in step {one.step} {sum(other.missing)} parameters have no gradient, not {sum(one.missing)}",
                )

    return first_difference("gradients there", differences())


def _still(baseline: Steps, candidate: Steps) -> Check:
    def differences() -> Iterator[Difference]:
        for one, other in zip(baseline, candidate, strict=True):
            if one.update > 0 and other.update == 0:
                yield one.step, f"step {one.step} changes no parameter"

    return first_difference("every step acts", differences())


def _random(baseline: Steps, candidate: Steps) -> Check:
    def differences() -> Iterator[Difference]:
        for one, other in zip(baseline, candidate, strict=True):
            for kind, place in (("starts", 2), ("ends", 3)):
                wanted = {(event[0], event[1]): event[place] for event in getattr(one, kind)}
                for event in getattr(other, kind):
                    if wanted.get((event[0], event[1]), event[place]) != event[place]:
                        yield (
                            one.step,
                            f"when pass {event[1] + 1} over loader {event[0] + 1} {kind}, the random numbers differ",
                        )

    return first_difference("random numbers", differences())


def finite_check(baseline: Trace, candidate: Trace) -> Check:
    """Return whether losses and parameters stayed finite where the baseline's did."""
    num = common(baseline, candidate)

    def differences() -> Iterator[Difference]:
        for one, other in zip(baseline.intervals[:num], candidate.intervals[:num], strict=True):
            if not other.finite and one.finite:
                yield one.step, f"the loss of step {one.step} is not a number"
            if not math.isfinite(other.update) and math.isfinite(one.update):
                yield one.step, f"the parameters are not finite after step {one.step}"
            if not one.finite:
                return

    return first_difference("finite", differences())


# -- ends -------------------------------------------------------------------------------------------------------


def _end(baseline: Trace, candidate: Trace) -> Check:
    def differences() -> Iterator[Difference]:
        fewer = len(candidate.intervals) < len(baseline.intervals)
        if fewer and candidate.reason == "script ended":
            yield None, f"the training ends after {len(candidate.intervals)} steps, not {len(baseline.intervals)}"
        if not fewer and baseline.reason == "script ended" and len(candidate.intervals) > len(baseline.intervals):
            yield None, f"the training goes on after its {len(baseline.intervals)} steps"

    return first_difference("end of training", differences())


def _checkpoint(baseline: Trace, candidate: Trace) -> Check:
    def differences() -> Iterator[Difference]:
        wanted, found = baseline.checkpoint, candidate.checkpoint
        for key in wanted:
            if key not in found:
                yield None, f"a checkpoint lacks {key}"
            elif found[key] != wanted[key]:
                yield None, f"in a checkpoint {_unlike(key, found[key], wanted[key])}"
        yield from ((None, f"a checkpoint has {key} too much") for key in found if key not in wanted)

    if not baseline.checkpoint or not candidate.checkpoint:
        return Check(name="checkpoint", passed=True, detail="not compared")
    return first_difference("checkpoint", differences(), f"{len(baseline.checkpoint)} entries")


def _unlike(key: str, found: Any, wanted: Any) -> str:
    if isinstance(wanted, Mapping) and isinstance(found, Mapping):
        name = next(name for name in {**wanted, **found} if wanted.get(name) != found.get(name))
        return f"{name} of {key} is {found.get(name)}, not {wanted.get(name)}"
    if isinstance(wanted, list) and isinstance(found, list):
        forms = [f"{kind} {tuple(shape)} with strides {tuple(strides)}" for kind, shape, strides in (found, wanted)]
        return f"{key} is {forms[0]}, not {forms[1]}"
    return f"{key} is {found}, not {wanted}"


def _whole_epoch(baseline: Trace, candidate: Trace) -> Check:
    def differences() -> Iterator[Difference]:
        for loader, wanted in baseline.dry.items():
            found = candidate.dry.get(loader)
            if found is None:
                continue
            for name in ("batches", "samples"):
                if found[name] != wanted[name]:
                    yield None, f"an epoch of loader {loader + 1} has {found[name]} {name}, not {wanted[name]}"
            if found["indices"] != wanted["indices"]:
                yield None, f"an epoch of loader {loader + 1} goes through other samples, or in another order"

    if baseline.second_epoch and candidate.second_epoch:
        covered = "a whole epoch was run through"
    elif baseline.dry and candidate.dry:
        covered = "no whole epoch fitted the time: of the rest only the indices were compared, not the samples"
    else:
        covered = "no whole epoch was covered"
    return first_difference("whole epoch", differences(), covered)
