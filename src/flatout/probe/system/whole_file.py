"""The file of a whole training: bounded in memory and on disk, however many steps there are.

Steps are kept as means of 1, 2, 4, ... consecutive ones: when there are too many entries, neighbours are merged, and
from then on twice as many steps make one. What some steps do besides is taken out of them first and kept as a stretch
outside: saving, a validation by hand, the wait for the first batch of an epoch. So entries are alike, their sums are
those of the training, and their median is a step's as far as means of a few are. Stretches are merged by phase, those
that hold batches apart. The file is written anew every half minute, and at the end.
"""

import os
import threading
import time
from collections import deque
from pathlib import Path

from flatout.probe.core.part_file import PartFile
from flatout.schema.codec import dump_record, step_columns
from flatout.schema.phase import STEP_PHASES, Phase
from flatout.schema.plain import to_plain
from flatout.schema.run import Outside, Step

__all__ = ["MOST_ENTRIES", "WholePart"]

MOST_ENTRIES = 8192
_MOST_EPOCHS = 4096  # whose number of steps is kept, the first ones
_REWRITE_S = 30.0
_RECENT = 64  # steps that say what is usual
_OF_ONE_STEP = '{"kind":"device"'
_INPUT, _CHECKPOINT = STEP_PHASES.index(Phase.INPUT), STEP_PHASES.index(Phase.CHECKPOINT)


class WholePart(PartFile):
    """Takes what a `PartFile` takes, and keeps a summary of it."""

    def __init__(self, path: Path) -> None:
        """Create the file with its schema line.

        Raises:
            OSError: when it cannot be created; a later failure to write is kept in `error` instead.
        """
        self._lines: list[str] = []
        self._written = time.monotonic()
        self._writing = threading.Lock()
        self._each, self._total = 1, 0
        self._entries: list[Step] = []
        self._pending: list[Step] = []
        self._stretches: list[Outside] = []
        self._epochs: dict[int, int] = {}
        self._recent: deque[tuple[int, ...]] = deque(maxlen=_RECENT)
        self._acting = 0  # steps with a forward pass without gradients in them
        super().__init__(path)

    def step(self, step: Step) -> None:
        """Take one finished step."""
        with self._lock:
            self._total += 1
            if step.epoch in self._epochs or len(self._epochs) < _MOST_EPOCHS:
                self._epochs[step.epoch] = self._epochs.get(step.epoch, 0) + 1
            self._pending.append(self._alike(step))
            if len(self._pending) < self._each:
                return
            self._entries.append(_mean(self._pending))
            self._pending = []
            if len(self._entries) >= MOST_ENTRIES:
                self._entries = [_mean(self._entries[i : i + 2]) for i in range(0, MOST_ENTRIES, 2)]
                self._each *= 2

    def outside(self, stretch: Outside) -> None:
        """Take one finished stretch outside the steps."""
        with self._lock:
            self._keep(stretch)

    def put_line(self, line: str) -> None:
        """Keep a line for the next time the file is written; device times of single steps are not."""
        if not line.startswith(_OF_ONE_STEP):
            self._lines.append(line)

    def flush(self) -> None:
        """Write the file anew, beside it and then in its place, when it is time or the training has ended."""
        if os.getpid() != self._pid or (time.monotonic() - self._written < _REWRITE_S and not self._closed.is_set()):
            return
        with self._writing:
            self._written = time.monotonic()
            with self._lock:  # held while lists are copied, not while they are written
                lines, entries, stretches = list(self._lines), list(self._entries), list(self._stretches)
                kept = {"value": self._each, "total": self._total, "epochs": list(self._epochs.values())}
                entries += [_mean(self._pending)] if len(self._pending) * 2 > self._each else []
            lines += [dump_record("steps", step_columns(entries))] if entries else []
            lines.append(dump_record("steps_each", kept))
            lines += [dump_record("outside", {"values": to_plain(tuple(stretches))})] if stretches else []
            partial = self.path.with_suffix(".partial")
            try:
                partial.write_text("\n".join(lines) + "\n", encoding="ascii")
                partial.replace(self.path)
            except OSError as error:
                self.error = self.error or f"{error.strerror} ({self.path.name})"

    # -- what some steps do besides -----------------------------------------------------------------------------

    def _keep(self, stretch: Outside) -> None:
        self._stretches.append(stretch)
        if len(self._stretches) >= MOST_ENTRIES:
            self._stretches = _merged(self._stretches)

    def _alike(self, step: Step) -> Step:
        """Return the step as it would have been without what it did besides; that is kept as stretches outside."""
        self._acting += step.forward_without_grad
        validates = step.forward_without_grad and self._acting * 2 < self._total
        if step.phases_ns[_CHECKPOINT]:
            step = self._take(step, Phase.CHECKPOINT, {_CHECKPOINT: 0})
        if self._recent and validates:
            usual = self._usual()
            step = self._take(step, Phase.VALIDATION, {i: min(step.phases_ns[i], usual[i]) for i in range(len(usual))})
        elif self._recent and step.first_of_epoch:
            left = {_INPUT: min(step.phases_ns[_INPUT], self._usual()[_INPUT])}
            step = self._take(step, Phase.EPOCH_GAP, left, num_batches=1)  # by which it is known from other gaps
        else:
            self._recent.append(step.phases_ns)
        return step._replace(first_of_epoch=False, forward_without_grad=step.forward_without_grad and not validates)

    def _usual(self) -> tuple[int, ...]:
        return tuple(sorted(column)[len(column) // 2] for column in zip(*self._recent, strict=True))

    def _take(self, step: Step, phase: Phase, left: dict[int, int], num_batches: int = 0) -> Step:
        phases = tuple(left.get(column, spent) for column, spent in enumerate(step.phases_ns))
        taken = step.wall_ns - sum(phases)
        if taken > 0 or num_batches:
            self._keep(Outside(phase=phase, start_ns=step.start_ns, wall_ns=taken, num_batches=num_batches))
        return step._replace(phases_ns=phases, wall_ns=sum(phases))


def _mean(steps: list[Step]) -> Step:
    """Return consecutive steps (or entries of equally many) as one; its phases sum to its wall time exactly."""
    if len(steps) == 1:
        return steps[0]
    count, first = len(steps), steps[0]
    phases = tuple(sum(column) // count for column in zip(*(step.phases_ns for step in steps), strict=True))
    before, loss, tail = (sum(column) // count for column in zip(*(step.host_parts_ns for step in steps), strict=True))
    on_device = all(step.device_ns for step in steps)
    columns = zip(*(step.device_ns for step in steps), strict=True) if on_device else ()
    return first._replace(
        wall_ns=sum(phases),
        phases_ns=phases,
        host_parts_ns=(before, loss, tail),
        forward_without_grad=all(step.forward_without_grad for step in steps),
        device_ns=tuple(sum(column) // count for column in columns),
    )


def _merged(stretches: list[Outside]) -> list[Outside]:
    """Return half as many stretches, neighbours of one phase put together; their time stays the same."""
    by_phase: dict[object, list[Outside]] = {}
    for stretch in stretches:
        by_phase.setdefault((stretch.phase, stretch.with_grad, stretch.num_batches > 0), []).append(stretch)
    found = []
    for alike in by_phase.values():
        for start in range(0, len(alike), 2):
            pair = alike[start : start + 2]
            found.append(
                Outside(
                    phase=pair[0].phase,
                    start_ns=pair[0].start_ns,
                    wall_ns=sum(one.wall_ns for one in pair),
                    with_grad=pair[0].with_grad,
                    num_batches=sum(one.num_batches for one in pair),
                    grad_passes=sum(one.grad_passes for one in pair),
                )
            )
    return sorted(found, key=lambda one: one.start_ns)
