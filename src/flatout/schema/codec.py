"""Recordings on disk: one JSON record a line, written as things happen, read whole or cut off.

A file begins with a `flatout` record that names the schema. Records of one kind may occur many times; steps are
stored in columns. A last line that was cut off (a killed process, a full disk) is left out; anything else that does
not parse is refused. Nothing read is ever executed.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from flatout.errors import BadRecording
from flatout.schema import run as schema
from flatout.schema.files import read_whole, write_whole
from flatout.schema.order import Order
from flatout.schema.phase import STEP_PHASES
from flatout.schema.plain import LARGEST, from_plain, to_plain
from flatout.schema.secrets import masked_plain

__all__ = [
    "RUN_FILE",
    "SCHEMA",
    "build_run",
    "dump_record",
    "read_order",
    "read_records",
    "read_run",
    "step_columns",
    "write_order",
    "write_run",
]

SCHEMA = 1
RUN_FILE = "run.jsonl"

_SINGLE = {
    "header": schema.Header,
    "environment": schema.Environment,
    "causes": schema.Causes,
    "device_memory": schema.DeviceMemory,
    "end": schema.End,
}
_MANY = {
    "loaders": schema.LoaderFacts,
    "models": schema.ModelFacts,
    "optimizers": schema.OptimizerFacts,
    "workers": schema.WorkerFacts,
    "utilization": schema.Utilization,
    "ranks": schema.RankSummary,
    "outside": schema.Outside,
    "ceilings": schema.Ceiling,
}
_NUMBERS = ("steps", "losses", "device", "steps_each")  # records without a text
_MOST_NOTES, _LONGEST_NOTE = 200, 4000
_STEP_FIELDS = schema.Step._fields


def dump_record(kind: str, body: Mapping[str, object]) -> str:
    """Return one line of a recording, without its line end, and with secrets hidden."""
    told = body if kind in _NUMBERS else masked_plain(body)
    assert isinstance(told, Mapping)
    return json.dumps({"kind": kind, **told}, separators=(",", ":"), ensure_ascii=True)


def step_columns(steps: Iterable[schema.Step]) -> dict[str, object]:
    """Return steps as columns, the form in which a recording stores them."""
    columns = zip(*steps, strict=True)
    return {name: list(column) for name, column in zip(_STEP_FIELDS, columns, strict=True)}


def write_run(run: schema.Run, path: Path) -> None:
    """Write a Run to `path`, first beside it and then in its place, so that no half file is ever seen."""
    write_whole(path, "".join(f"{line}\n" for line in _lines(run)).encode("ascii"))


def _lines(run: schema.Run) -> Iterator[str]:
    yield dump_record("flatout", {"schema": SCHEMA})
    for kind in _SINGLE:
        value = getattr(run, kind)
        if value is not None:
            yield dump_record(kind, {"value": to_plain(value)})
    for start in range(0, len(run.steps), 10_000):
        yield dump_record("steps", step_columns(run.steps[start : start + 10_000]))
    for kind in _MANY:
        if getattr(run, kind):
            yield dump_record(kind, {"values": to_plain(getattr(run, kind))})
    yield dump_record("losses", {"values": list(run.losses)})
    kept = {"value": run.steps_each, "total": run.total_steps, "epochs": list(run.epoch_lengths)}
    yield dump_record("steps_each", kept)
    facts: dict[str, Any] = {"first_step": run.first_step} if run.first_step != 1 else {}
    facts |= {"samples_per_step": run.samples_per_step, "probe_us": run.probe_us, "seams": dict(run.seams)}
    yield dump_record("facts", {**facts, "planned": to_plain(run.planned), "epoch_end": to_plain(run.epoch_end)})
    yield dump_record("notes", {"values": list(run.notes)})


def read_records(path: Path) -> list[dict[str, Any]]:
    """Return the records of a file in order.

    Raises:
        BadRecording: when the file is missing, is no recording, or is of another schema.
    """
    try:
        lines = read_whole(path).decode().split("\n")
    except (OSError, UnicodeDecodeError) as error:
        told = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise BadRecording(f"{path} cannot be read as a recording ({told}).") from None
    records = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        record = _parse(path, number, line, last=number == len(lines))
        if record is not None:
            records.append(record)
    if not records or records[0].get("kind") != "flatout":
        raise BadRecording(f"{path} is not a flatout recording: its first line names no schema.")
    if records[0].get("schema") != SCHEMA:
        found = records[0].get("schema")
        raise BadRecording(
            f"{path} has schema {found!r}; this version of flatout reads schema {SCHEMA}.",
            advice="Read it with the version that wrote it, or record it again.",
        )
    return records


def _parse(path: Path, number: int, line: str, *, last: bool) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
        if not isinstance(record, dict) or "kind" not in record:
            raise ValueError("no kind")
    except (ValueError, RecursionError) as error:
        if last and number > 1:
            return None
        raise BadRecording(
            f"{path} is damaged: line {number} is no record ({error}).",
            "What follows cannot be trusted.",
            "Record it again.",
        ) from None
    return record


def build_run(records: Iterable[Mapping[str, Any]]) -> schema.Run:
    """Return the Run that `records` describe; unknown kinds are passed over.

    Raises:
        ValueError: when a record does not have the form of its kind.
    """
    singles: dict[str, Any] = {"header": schema.Header(script="")}
    many: dict[str, list[Any]] = {kind: [] for kind in (*_MANY, "steps", "losses", "notes")}
    for record in records:
        kind = record["kind"]
        if kind in _SINGLE:
            singles[kind] = from_plain(_SINGLE[kind], record.get("value"))
        elif kind == "steps":
            many["steps"].extend(_steps(record))
        elif kind in _MANY:
            many[kind].extend(from_plain(_MANY[kind], value) for value in record.get("values", ()))
        elif kind == "losses":
            many["losses"].extend(from_plain(float, value) for value in record.get("values", ()))
        elif kind == "notes":
            many["notes"].extend(_notes(record.get("values", ()), len(many["notes"])))
        elif kind == "steps_each":
            singles["steps_each"] = from_plain(int, record.get("value", 1))
            singles["total_steps"] = from_plain(int, record.get("total", 0))
            singles["epoch_lengths"] = tuple(from_plain(int, each) for each in record.get("epochs", ()))
        elif kind == "facts":
            singles["samples_per_step"] = from_plain(float | None, record.get("samples_per_step"))
            singles["probe_us"] = from_plain(float, record.get("probe_us", 0.0))
            singles["first_step"] = from_plain(int, record.get("first_step", 1))
            singles["seams"] = from_plain(Mapping[str, int], record.get("seams", {}))
            singles["planned"] = from_plain(schema.Planned, record.get("planned", {}))
            singles["epoch_end"] = from_plain(schema.EpochEnd | None, record.get("epoch_end"))
    fields: dict[str, Any] = {**singles, **{kind: tuple(values) for kind, values in many.items()}}
    return schema.Run(**fields)


def _steps(record: Mapping[str, Any]) -> Iterator[schema.Step]:
    for number, values in enumerate(zip(*(record[name] for name in _STEP_FIELDS), strict=True)):
        step = schema.Step._make(tuple(value) if isinstance(value, list) else value for value in values)
        whole = (step.start_ns, step.wall_ns, step.num_batches, step.epoch, *step.phases_ns, *step.host_parts_ns)
        counts = all(type(value) is int and -LARGEST <= value <= LARGEST for value in (*whole, *step.device_ns))
        if not counts or len(step.phases_ns) != len(STEP_PHASES):
            raise ValueError(f"step {number} does not have the form of a step")
        yield step


def _notes(values: Iterable[object], so_far: int) -> Iterator[str]:
    """Yield notes, cut, and no more of them than anybody reads."""
    for number, value in enumerate(values, start=so_far):
        if number == _MOST_NOTES:
            yield "further notes are left out"
        if number < _MOST_NOTES:
            yield str(value)[:_LONGEST_NOTE]


def read_run(path: Path) -> schema.Run:
    """Return the Run stored in `path`, a file or the folder that holds `run.jsonl`.

    Raises:
        BadRecording: when there is none, or it is damaged, foreign, or of another schema.
    """
    file = path / RUN_FILE if path.is_dir() else path
    if not os.path.lexists(file):
        raise BadRecording(f"{path} holds no recording ({RUN_FILE} is not there).")
    try:
        return build_run(read_records(file))
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise BadRecording(f"{file} is damaged: {error}.", advice="Record it again.") from None


def write_order(order: Order, path: Path) -> None:
    """Write an order where `ORDER_VARIABLE` will point."""
    write_whole(path, json.dumps(to_plain(order)).encode())


def read_order(path: Path) -> Order:
    """Return the order in `path`.

    Raises:
        ValueError: when it is not an order.
    """
    order = from_plain(Order, json.loads(read_whole(path)))
    assert isinstance(order, Order)
    return order
