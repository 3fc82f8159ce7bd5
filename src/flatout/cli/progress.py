"""What a person sees while the engine works: a bar on a terminal, one line a stage in a pipe."""

import sys
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import click

from flatout.report.visible import visible
from flatout.units import format_seconds

if TYPE_CHECKING:
    from flatout.engine.progress import Progress

__all__ = ["Watcher", "echo_bytes"]


class Watcher:
    """Follows the engine's progress on stderr; a context manager that cleans up behind itself."""

    def __init__(self, *, bar: bool) -> None:
        """Draw a bar where `bar` asks for it and stderr is a terminal."""
        self._stage = ""
        self._bar: Any = None
        self._task: Any = None
        if bar and sys.stderr.isatty():
            self._bar = _new_bar()
            self._task = self._bar.add_task("starting", total=1.0, detail="")

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def watch(self, progress: "Progress") -> None:
        """Show where the engine is."""
        if self._bar is not None:
            share = min(1.0, max(0.0, progress.share))
            self._bar.update(self._task, completed=share, description=visible(progress.stage), detail=_detail(progress))
        elif progress.stage != self._stage:
            click.echo(f"flatout: {visible(progress.stage)}", err=True)
        self._stage = progress.stage


def echo_bytes(chunk: bytes) -> None:
    """Pass the script's own output on as it is, to stderr, so that stdout holds the report and nothing else."""
    sys.stderr.flush()
    buffer = getattr(sys.stderr, "buffer", None)
    if buffer is None:
        sys.stderr.write(chunk.decode("utf-8", "backslashreplace"))
    else:
        buffer.write(chunk)
        buffer.flush()


def _detail(progress: "Progress") -> str:
    """Return `120 steps, 12.0 s left`, as far as it is known."""
    parts = [f"{progress.steps} step{'s' if progress.steps != 1 else ''}"] if progress.steps else []
    if progress.remaining_s is not None:
        parts.append(f"{format_seconds(max(0.0, progress.remaining_s))} left")
    if progress.note:
        parts.append(visible(progress.note))
    return ", ".join(parts)


def _new_bar() -> Any:
    """Return the bar, which vanishes when the work is done."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=30),
        TextColumn("{task.fields[detail]}", markup=False),
        console=Console(stderr=True, highlight=False),
        transient=True,
    )
