"""The parts that the observed processes wrote, put together into one Run."""

import contextlib
import dataclasses
import json
import statistics
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from flatout.analysis.breakdown import account
from flatout.analysis.epochs import with_epoch_end
from flatout.analysis.evaluations import with_evaluations
from flatout.analysis.host_time_roles import assign_roles
from flatout.analysis.rollouts import with_rollouts
from flatout.engine.process.clock_merge import timeline
from flatout.errors import BadRecording
from flatout.schema.codec import build_run, read_records
from flatout.schema.files import read_whole
from flatout.schema.phase import STEP_PHASES
from flatout.schema.plain import from_plain
from flatout.schema.run import (
    Causes,
    End,
    Frame,
    LineCost,
    LoaderFacts,
    RankSummary,
    RemoteReads,
    Run,
    Span,
    Step,
    Utilization,
    WorkerFacts,
)

__all__ = ["assemble", "collect_run", "join_causes"]


def assemble(folder: Path, timed: Run | None = None) -> Run | None:
    """Return the Run that the parts in `folder` make up, with host time put to its roles; None without a step.

    `timed` is the timed part where it has been collected before; a diagnosis that was killed has only its parts.
    """
    parts = folder / "parts"
    timed = timed or collect_run(parts, "timed")
    if timed is None or not timed.steps:
        return None
    deep = collect_run(parts, "deep")
    if deep is None or not deep.steps:
        lost = "the deep run measured nothing: lines of code and facts about loaders are missing"
        return dataclasses.replace(timed, notes=(*timed.notes, lost))
    return with_evaluations(with_rollouts(assign_roles(join_causes(timed, deep))))


def collect_run(parts: Path, mode: str, utilization: tuple[Utilization, ...] = ()) -> Run | None:
    """Return the Run of the first rank that recorded steps in `mode`, or of any process that was attached at all."""
    runs = []
    for path in sorted(parts.glob(f"{mode}-rank*.jsonl")):
        with contextlib.suppress(BadRecording, ValueError, KeyError, TypeError):
            runs.append(_read_part(path))
    if not runs:
        return None
    training = [run for run in runs if run.steps]
    if not training:
        return _first_to_fail(runs) or runs[0]
    training.sort(key=lambda run: (run.header.rank, -run.num_steps))
    ranks = tuple(
        RankSummary(
            rank=run.header.rank,
            num_steps=run.num_steps,
            median_ms=statistics.median(step.wall_ns for step in run.steps) / 1e6,
            phases_ms=_phases_ms(run),
            samples_per_step=run.samples_per_step or 0.0,
            hottest=_hottest(run),
            exchange=run.causes.exchange if run.causes else None,
            epoch_batches=_whole_epoch(run)[0],
            epoch_s=_whole_epoch(run)[1],
        )
        for run in training
    )
    first = dataclasses.replace(training[0], ranks=ranks, utilization=utilization, end=_end(training[0], runs))
    return _with_workers(first, parts) if mode == "deep" else first


def _first_to_fail(runs: list[Run]) -> Run | None:
    """Return the process whose script failed first: what others say after that is what became of them by it."""
    failed = [run for run in runs if run.end.reason == "script failed"]
    return min(failed, key=lambda run: run.end.at_ns, default=None)


def _end(run: Run, runs: list[Run]) -> End:
    """Return how the recording of `run` ended; where another rank's failure took it down, that one's error."""
    failed = _first_to_fail(runs)
    if failed is None or run.end.reason not in ("script failed", "killed", "unknown"):
        return run.end
    return dataclasses.replace(failed.end, at_ns=run.end.at_ns)


def _phases_ms(run: Run) -> dict[str, float]:
    """Return the median milliseconds of each phase in the steady steps: one step that was held up moves no median."""
    steady = run.steps[account(run).warmup :]
    columns = zip(*(step.phases_ns for step in steady), strict=True)
    return {phase.value: statistics.median(column) / 1e6 for phase, column in zip(STEP_PHASES, columns, strict=True)}


def _whole_epoch(run: Run) -> tuple[int, float]:
    """Return the batches of the last epoch that was recorded as a whole, and its seconds; zeros where none was."""
    begins = [number for number, step in enumerate(run.steps) if number and step.epoch != run.steps[number - 1].epoch]
    if run.steps_each != 1 or not begins:
        return 0, 0.0
    begin, end = [0, *begins][-2:]
    batches = sum(step.num_batches for step in run.steps[begin:end])
    return batches, (run.steps[end].start_ns - run.steps[begin].start_ns) / 1e9


def _hottest(run: Run) -> dict[str, Frame]:
    """Return the user's line that most of each phase goes to in the process of this rank, as a deep run saw it."""
    spent: dict[str, defaultdict[Frame, float]] = {}
    for cost in run.causes.lines if run.causes else ():
        if cost.stack and cost.process == "main":
            spent.setdefault(cost.phase.value, defaultdict(float))[cost.stack[0]] += cost.seconds
    return {phase: max(lines, key=lines.__getitem__) for phase, lines in spent.items()}


def _read_part(path: Path) -> Run:
    records = read_records(path)
    latest: dict[str, dict[str, Any]] = {}
    kept = []
    device: dict[int, list[int]] = {}
    batch_samples, first = None, 1
    for record in records:
        if record["kind"] == "device":
            device[int(record["step"])] = record["ns"]
        elif record["kind"] == "stage":
            first = int(record["step"])
        elif record["kind"] in ("steps", "outside", "notes", "losses"):
            kept.append(record)
        else:
            latest[record["kind"]] = record
            batch_samples = record.get("batch_samples", batch_samples)
    run = build_run([*latest.values(), *kept])
    steps = tuple(_with_device(step, device.get(number)) for number, step in enumerate(run.steps))
    samples = None
    if batch_samples and steps:
        samples = float(batch_samples) * statistics.median(step.num_batches for step in steps)
    run = _from_step(dataclasses.replace(run, steps=steps, samples_per_step=samples), first)
    return run if run.end.at_ns else dataclasses.replace(run, end=_cut_off(run))


def _from_step(run: Run, first: int) -> Run:
    """Leave out what came before step `first`, counted from 1: another training."""
    if not 1 < first <= len(run.steps):
        return run
    over, steps = run.steps[: first - 1], run.steps[first - 1 :]
    begin, epoch = steps[0].start_ns, steps[0].epoch
    seconds = (begin - over[0].start_ns) / 1e9
    said = f"the first {first - 1:,} steps ({seconds:.1f} s) train something else: figures are of what follows"
    return dataclasses.replace(
        run,
        steps=tuple(step._replace(epoch=step.epoch - epoch) for step in steps),
        outside=tuple(stretch for stretch in run.outside if stretch.start_ns >= begin),
        losses=run.losses[first - 1 :] if len(run.losses) >= len(run.steps) else run.losses,
        first_step=first,
        notes=(*run.notes, said),
    )


def _with_device(step: Step, nanoseconds: list[int] | None) -> Step:
    return step if nanoseconds is None else step._replace(device_ns=tuple(nanoseconds))


def _cut_off(run: Run) -> End:
    """A recording without an end was killed: it ends with the last thing it wrote."""
    ends = [step.start_ns + step.wall_ns for step in run.steps[-1:]]
    ends += [stretch.start_ns + stretch.wall_ns for stretch in run.outside[-1:]]
    return End(reason="killed", at_ns=max(ends, default=run.header.launched_ns))


def _with_workers(run: Run, parts: Path) -> Run:
    """Add what the DataLoader workers of a deep run wrote."""
    lines: list[LineCost] = list(run.causes.lines) if run.causes else []
    workers: list[WorkerFacts] = []
    fetching: dict[str, dict[str, float]] = {}
    spans: list[Span] = []
    for path in sorted(parts.glob("deep-worker-*.json")):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            body = json.loads(read_whole(path))
            workers.append(from_plain(WorkerFacts, body["worker"]))
            spans.extend(from_plain(Span, span) for span in body["spans"])
            lines.extend(from_plain(LineCost, line) for line in body["lines"])
            for key, stats in body["fetching"].items():
                total = fetching.setdefault(key, dict.fromkeys(stats, 0))
                for name, value in stats.items():
                    total[name] += value
    loaders = tuple(_with_fetches(loader, fetching) for loader in run.loaders)
    causes = run.causes or Causes()
    causes = dataclasses.replace(causes, lines=tuple(lines), timeline=timeline(causes.timeline, spans))
    return dataclasses.replace(run, causes=causes, workers=tuple(workers), loaders=loaders)


def _with_fetches(loader: LoaderFacts, fetching: dict[str, dict[str, float]]) -> LoaderFacts:
    if not loader.num_workers:
        return loader
    for key, stats in fetching.items():
        name, _, length = key.rpartition(":")
        same = name.rpartition(".")[2] == loader.name and (int(length) == loader.num_samples or loader.iterable_style)
        if same and stats["fetches"]:
            count = stats["fetches"]
            return dataclasses.replace(
                loader,
                fetches=int(count),
                sample_s=(stats["total_ns"] - stats["collate_ns"]) / count / 1e9,
                sample_cpu_s=stats["sample_cpu_ns"] / count / 1e9,
                sample_queued_s=stats.get("sample_queued_ns", 0) / count / 1e9,
                collate_s=stats["collate_ns"] / count / 1e9,
                remote=RemoteReads.of(stats),
            )
    return loader


def join_causes(timed: Run, deep: Run) -> Run:
    """Return the timed Run with the causes and facts of the deep one; times stay those of the timed run."""
    seen = {rank.rank: rank for rank in deep.ranks}
    joined = dataclasses.replace(
        timed,
        ranks=tuple(_with_causes(rank, seen.get(rank.rank)) for rank in timed.ranks),
        causes=deep.causes,
        workers=deep.workers,
        loaders=tuple(_joined(timed.loaders, deep.loaders)),
        models=deep.models or timed.models,
        optimizers=timed.optimizers or deep.optimizers,
    )
    return with_epoch_end(joined, deep)


def _with_causes(rank: RankSummary, deep: RankSummary | None) -> RankSummary:
    return rank if deep is None else dataclasses.replace(rank, hottest=deep.hottest, exchange=deep.exchange)


def _joined(timed: tuple[LoaderFacts, ...], deep: tuple[LoaderFacts, ...]) -> Iterable[LoaderFacts]:
    left = list(deep)
    for loader in timed:
        match = next((other for other in left if _same_loader(loader, other)), None)
        if match is None:
            yield loader
            continue
        left.remove(match)
        yield dataclasses.replace(
            match,
            wait_s=loader.wait_s,
            start_s=loader.start_s,
            epochs_started=loader.epochs_started,
            is_training=loader.is_training or match.is_training,
        )


def _same_loader(one: LoaderFacts, other: LoaderFacts) -> bool:
    return (one.name, one.created_at, one.num_samples) == (other.name, other.created_at, other.num_samples)
