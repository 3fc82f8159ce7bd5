"""`flatout diagnose --only loader`: the script runs up to its first training step, and its loaders are measured there.

No gradient is computed and no step of an optimizer is made; the user's files stay as they are, as in any diagnosis.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from flatout.engine.process.failure import shown_tail
from flatout.engine.process.launch import Execution, Outcome, read_notes
from flatout.engine.process.leftovers import settle_left_over
from flatout.engine.process.run_folder import one_at_a_time, run_folder
from flatout.engine.process.target import Target
from flatout.engine.progress import Progress
from flatout.errors import BadRecording, FlatoutError, Interrupted, NothingMeasured, ScriptFailed
from flatout.schema.codec import read_records, write_order
from flatout.schema.loader_figures import LoaderFigures
from flatout.schema.order import Order
from flatout.schema.plain import from_plain

__all__ = ["LoaderReport", "measure_loaders"]

_USUAL_S = 45.0  # that it takes, for the progress bar


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderReport:
    """What was found about the loaders of a script."""

    script: str
    loaders: tuple[LoaderFigures, ...]
    notes: tuple[str, ...] = ()


def measure_loaders(
    target: Target,
    *,
    budget_s: float,
    out: Path | None,
    watch: Callable[[Progress], None],
    echo: Callable[[bytes], None] | None = None,
) -> LoaderReport:
    """Run `target` up to its first training step and return what its training loaders give by themselves.

    Raises:
        NothingMeasured: no DataLoader was drawn from before the first backward pass, or there was none.
        ScriptFailed: the script itself failed before.
        Interrupted: Ctrl-C.
        UsageError: the folder cannot be used.
    """
    with one_at_a_time():
        settle_left_over(out, lambda text: watch(Progress(text, 0, 0.0, None)))
        folder = run_folder(out, target.slug)
        path = folder / "order-loader.json"
        order = Order(
            mode="loader", folder=str(folder), script=target.name, max_s=budget_s, launched_unix_s=time.time()
        )  # fmt: skip
        write_order(order, path)

        execution = Execution(target, folder, path, "loader")
        output = LogTail(execution.log)

        def follow(_: int, elapsed_s: float) -> None:
            if echo is not None:
                echo(output.read())
            watch(Progress("the loader alone", 0, min(0.97, elapsed_s / _USUAL_S), max(1.0, _USUAL_S - elapsed_s)))

        try:
            outcome = execution.run(budget_s, follow)
        except KeyboardInterrupt:
            raise Interrupted("Interrupted.", "Nothing was measured yet.") from None
        return _collected(target, folder, outcome, execution.log)


class LogTail:
    """What was added to a file since it was last read."""

    def __init__(self, path: Path) -> None:
        """Begin at its beginning; it need not be there yet."""
        self._path, self._offset = path, 0

    def read(self) -> bytes:
        """Return what is new."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                found = file.read()
        except OSError:
            return b""
        self._offset += len(found)
        return found


def _collected(target: Target, folder: Path, outcome: Outcome, log: Path) -> LoaderReport:
    loaders: list[LoaderFigures] = []
    notes: list[str] = []
    for part in sorted((folder / "parts").glob("loader-rank*.jsonl")):
        for record in read_records(part):
            try:
                if record["kind"] == "loader_figures":
                    loaders.append(from_plain(LoaderFigures, record.get("value")))
                elif record["kind"] == "notes":
                    notes += [str(each) for each in record.get("values", ())]
            except ValueError as error:
                raise BadRecording(f"{part} is damaged: {error}.") from None
    notes += read_notes(folder)
    if not loaders:
        raise _nothing(target, folder, outcome, log, notes)
    return LoaderReport(script=target.name, loaders=tuple(loaders), notes=tuple(notes))


def _nothing(target: Target, folder: Path, outcome: Outcome, log: Path, notes: list[str]) -> FlatoutError:
    """Return the error for a script whose loaders were not measured."""
    if outcome.launch_error:
        return NothingMeasured(f"{target.command[0]} could not be started ({outcome.launch_error}).")
    if notes:
        return NothingMeasured(f"The loaders of {target.name} could not be measured.", " ".join(notes))
    failed = sorted((folder / "parts").glob("failed-*.txt"))
    if failed or outcome.stopped_by == "attach":
        return NothingMeasured(
            f"flatout could not attach to {target.name}.", f"The reason is in {failed[0]}." if failed else ""
        )
    if outcome.stopped_by:
        return NothingMeasured(
            f"{target.name} came to no backward pass in {outcome.wall_s:.0f} s.",
            "Its loaders are measured where it would take its first training step.",
            "If it prepares data first, give it more time: --budget 20m.",
        )
    if outcome.exit_code:
        return ScriptFailed(
            f"{target.name} failed with exit code {outcome.exit_code} before its first training step.",
            shown_tail(log),
            "Run it without flatout to see whether it fails there too.",
        )
    return NothingMeasured(
        f"{target.name} drew from no DataLoader before a backward pass.",
        "Its loaders are measured where it would take its first training step.",
        "A loop that makes its batches by itself is seen by `flatout diagnose` without --only loader.",
    )
