"""A training while it runs, as lines: the step's account, the epoch, the machine, and what is waited for."""

from collections.abc import Sequence

from rich.text import Text

from flatout.report.account import AMOUNT, INDENT, LABEL, SHARE, SHOWN_SHARE, WAITING, format_rate
from flatout.report.layout import Look
from flatout.report.verdict import COMPUTING, HEALTHY_SHARE, SUBJECTS
from flatout.schema.live import GpuNow, LiveNow, MachineNow, RankNow
from flatout.schema.phase import Phase
from flatout.units import format_bytes, format_ms, format_seconds, format_share

__all__ = ["last_words", "live_lines"]

_STALLED_S = 2.0
_MOST_RANKS = 4
_MOST_GPUS = 4
_LEVELS = "\u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588"
"""Eighths of a column, for the cores."""


def live_lines(now: LiveNow, look: Look) -> list[Text]:
    """Return the panel: about 20 lines, none wider than `look`."""
    shown = _slowest(now.ranks)
    lines = [_title(now, shown, look)]
    if shown is not None and shown.recent_steps:
        lines += look.paragraph(_pace(shown), style="bold")
    lines += look.paragraph(waits_for(shown), hanging=INDENT)
    if shown is not None and shown.recent_steps:
        lines += [*_phases(shown, look), *_outside(shown, look), *_epoch(shown, look)]
    return [*lines, *_ranks(now.ranks, look), *_machine(now.machine, look)]


def last_words(now: LiveNow) -> list[str]:
    """Return what remains of the panel when the training has ended, in at most two sentences."""
    shown = _slowest(now.ranks)
    took = format_seconds(now.wall_s)
    if shown is None or not shown.steps:
        return [f"{now.script}: no training step was seen in {took}"]
    all_s = sum(shown.step_s.values())
    steps = f"{shown.steps:,} step{'s' if shown.steps != 1 else ''}"
    shares = sorted(((spent / all_s, name) for name, spent in shown.step_s.items() if all_s), reverse=True)
    told = ", ".join(f"{name} {format_share(share)}" for share, name in shares if share >= SHOWN_SHARE)
    whose = f" (rank {shown.rank}, the slowest of {len(now.ranks)})" if len(now.ranks) > 1 else ""
    return [
        f"{now.script}: {steps} in {took}, {format_ms(all_s / shown.steps * 1e3)} each{whose}",
        *([f"  all of them: {told}"] if told else []),
        *([f"  {shown.note}"] if shown.note else []),
    ]


def waits_for(rank: RankNow | None) -> str:
    """Return what the training mostly waits for, in one sentence."""
    if rank is None or not rank.recent_steps:
        return "No training step yet."
    if rank.note:
        return f"Nothing more is shown: {rank.note}"
    if rank.idle_s > max(_STALLED_S, 5 * rank.step_ms / 1e3):
        what = {"validation": ": a validation runs", "between epochs": ": between two epochs"}.get(rank.doing, "")
        return f"No step for {format_seconds(rank.idle_s)}{what}."
    shares = {name: ms / rank.step_ms for name, ms in rank.phases_ms.items()} if rank.step_ms else {}
    computing = sum(shares.get(phase.value, 0.0) for phase in COMPUTING)
    waiting = max(WAITING, key=lambda phase: shares.get(phase.value, 0.0))
    if computing >= HEALTHY_SHARE or waiting.value not in shares:
        return f"Training computes: {format_share(computing)} of each step is forward, backward and optimizer."
    subject, spent = SUBJECTS[waiting]
    return f"{subject}: {format_share(shares[waiting.value])} {spent}."


def _slowest(ranks: Sequence[RankNow]) -> RankNow | None:
    return max(ranks, key=lambda rank: (rank.step_ms, -rank.rank), default=None)


def _title(now: LiveNow, shown: RankNow | None, look: Look) -> Text:
    parts = [now.script, format_seconds(now.wall_s)]
    if shown is not None:
        parts.append(f"step {shown.steps:,}")
    if shown is not None and len(now.ranks) > 1:
        parts.append(f"rank {shown.rank}, the slowest of {len(now.ranks)}")
    rule = "-" if look.ascii_only else "\u2500"
    line = look.line(", ".join(parts), indent=0, style="bold")
    line = Text.assemble((f"{rule * INDENT} ", "dim"), line)
    line.truncate(look.width)
    return Text.assemble(line, (f" {rule * (look.width - line.cell_len - 1)}", "dim")) if _room(line, look) else line


def _room(line: Text, look: Look) -> bool:
    return look.width - line.cell_len > 1


def _pace(rank: RankNow) -> str:
    per_s = rank.steps_per_s
    rate = f"{per_s:,.0f}" if per_s >= 100 else f"{per_s:.3g}"
    samples = f", {format_rate(rank.samples_per_step * per_s)}" if rank.samples_per_step else ""
    return f"Each step takes {format_ms(rank.step_ms)} ({rate} steps/s){samples}"


def _row(label: str, amount: str, share: float | None, look: Look, tail: str = "", color: str = "green") -> Text:
    """Return a line in the columns of the report's account, its bar as long as `share` of what is left."""
    percent = "" if share is None else format_share(share)
    row = look.safe(f"{label:<{LABEL}} {amount:>{AMOUNT}} {percent:>{SHARE}}  ")
    tail = look.safe(f"  {tail}") if tail else ""
    width = look.width - INDENT - len(row) - len(tail)
    bar = look.bar(share or 0.0, width)
    line = Text.assemble(" " * INDENT, row, (bar, color), " " * max(0, width - len(bar)) if tail else "", tail)
    line.truncate(look.width)
    return line


def _phases(rank: RankNow, look: Look) -> list[Text]:
    waiting = {phase.value for phase in WAITING}
    shares = sorted(
        ((ms / rank.step_ms, name, ms) for name, ms in rank.phases_ms.items() if rank.step_ms), reverse=True
    )
    return [
        _row(name, format_ms(ms), share, look, color="yellow" if name in waiting else "green")
        for share, name, ms in shares
        if share >= SHOWN_SHARE
    ]


def _outside(rank: RankNow, look: Look) -> list[Text]:
    """Return what lay between the steps, where that is worth a line."""
    known = {phase.value for phase in Phase}
    parts = [
        f"{name.replace('_', ' ')} {format_seconds(spent)} ({format_share(spent / rank.span_s)})"
        for name, spent in sorted(rank.outside_s.items(), key=lambda each: -each[1])
        if name in known and rank.span_s and spent / rank.span_s >= SHOWN_SHARE
    ]
    return look.paragraph(f"Outside the steps: {', '.join(parts)}.", hanging=INDENT) if parts else []


def _epoch(rank: RankNow, look: Look) -> list[Text]:
    lines = []
    if rank.epoch and rank.epoch_batches and rank.batches <= rank.epoch_batches:
        left = rank.epoch_left_s
        tail = f"{format_seconds(left)} left" if left else ""
        done = f"{rank.batches}/{rank.epoch_batches}"
        lines.append(_row(f"epoch {rank.epoch}", done, rank.batches / rank.epoch_batches, look, tail, "cyan"))
    elif rank.epoch:
        lines.append(_row(f"epoch {rank.epoch}", f"{rank.batches}", None, look, "batches, total unknown"))
    if rank.ready is not None:
        share = rank.ready / rank.most_ready if rank.most_ready else 0.0
        lines.append(_row("ready", f"{rank.ready} of {rank.most_ready}", share, look, "batches", "cyan"))
    return lines


def _ranks(ranks: Sequence[RankNow], look: Look) -> list[Text]:
    """Return a line for each rank, where there are several; of many the fastest and the slowest."""
    if len(ranks) < 2:
        return []
    shown = sorted(ranks, key=lambda rank: rank.step_ms)
    chosen = sorted(ranks, key=lambda rank: rank.rank) if len(ranks) <= _MOST_RANKS else [shown[0], shown[-1]]
    return [
        _row(f"rank {rank.rank}", format_ms(rank.step_ms), None, look, f"step {rank.steps:,}; {_largest(rank)}")
        for rank in chosen
    ]


def _largest(rank: RankNow) -> str:
    if not rank.phases_ms or not rank.step_ms:
        return "no step yet"
    name = max(rank.phases_ms, key=lambda each: rank.phases_ms[each])
    return f"{name} {format_share(rank.phases_ms[name] / rank.step_ms)}"


def _machine(machine: MachineNow, look: Look) -> list[Text]:
    if not machine.cores:  # not looked at yet
        return []
    cpu = f"main {machine.main_cpu:.2f}, workers {machine.worker_cpu:.2f}, others {machine.foreign_cpu:.2f}"
    shm = f", /dev/shm {format_share(machine.shm_used_share)} full"
    memory = f"{format_bytes(machine.memory_bytes)}, {format_bytes(machine.available_bytes)} free{shm}"
    disk = f"read {format_bytes(machine.disk_read_s)}/s, write {format_bytes(machine.disk_write_s)}/s"
    network = f"in {format_bytes(machine.net_in_s)}/s, out {format_bytes(machine.net_out_s)}/s"
    busy = f"{sum(machine.cores):.1f} of {len(machine.cores)}"
    return [
        *_told("cores", f"{busy}  {_levels(machine.cores, look, LABEL + 3 + len(busy))}", look),
        *_told("CPU", cpu, look),
        *_told("memory", memory, look),
        *_gpus(machine.gpus, look),
        *_told("disk", disk, look),
        *_told("network", network, look),
    ]


def _told(label: str, text: str, look: Look) -> list[Text]:
    return [look.line(f"{label:<{LABEL}} {text}", indent=INDENT)]


def _levels(cores: Sequence[float], look: Look, taken: int) -> str:
    """Return how busy each core is: in percent while there is room, then as a column, then of several together."""
    room = max(1, look.width - INDENT - taken)
    percents = " ".join(f"{min(1.0, core):.0%}" for core in cores)
    if len(percents) <= room and len(cores) <= 8:
        return percents
    each = -(-len(cores) // room)
    groups = [cores[start : start + each] for start in range(0, len(cores), each)]
    levels = "0123456789" if look.ascii_only else _LEVELS
    return "".join(levels[min(len(levels) - 1, int(sum(group) / len(group) * len(levels)))] for group in groups)


def _gpus(gpus: Sequence[GpuNow], look: Look) -> list[Text]:
    if len(gpus) <= _MOST_GPUS:
        return [_gpu(number, gpu, look) for number, gpu in enumerate(gpus)]
    least = min(range(len(gpus)), key=lambda number: gpus[number].busy)
    mean = format_share(sum(gpu.busy for gpu in gpus) / len(gpus))
    fullest = max(gpus, key=lambda gpu: gpu.memory_bytes)
    memory = f"{format_bytes(fullest.memory_bytes)} of {format_bytes(fullest.total_bytes)}"
    least_busy = f"least {format_share(gpus[least].busy)} (GPU {least})"
    return _told(f"{len(gpus)} GPUs", f"busy {mean}, {least_busy}, up to {memory}", look)


def _gpu(number: int, gpu: GpuNow, look: Look) -> Text:
    memory = f"{format_bytes(gpu.memory_bytes)} of {format_bytes(gpu.total_bytes)}"
    slowed = f", {gpu.throttled}" if gpu.throttled else ""
    return _row(f"GPU {number}", f"{gpu.power_w:.0f} W", gpu.busy, look, memory + slowed)
