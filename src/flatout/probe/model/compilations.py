"""What `torch.compile` says of its own work in this process: where graphs ended, what was compiled again and why.

Read from the records that Dynamo keeps for itself (`torch._dynamo.utils`: `graph_break_reasons`, compilation metrics);
nothing is hooked, and a version that keeps them elsewhere is one that nothing is known of.
"""

import re
import sys
from collections import Counter
from collections.abc import Iterable
from typing import Any

from flatout.probe.core.probe import DeepContext, Probe
from flatout.probe.core.user_places import is_user_file
from flatout.schema.run import CompiledFunction, Frame, GraphBreak

__all__ = ["PROBE", "compiled_functions", "graph_breaks", "optimized_module"]

_MOST = 20
_LENGTH = 120  # characters of a reason
_RESUMED = re.compile(r"^torch_dynamo_resume_in_(.+)_at_\d+$")
_LIMIT = re.compile(r"(recompile|cache[ _]size)[ _]limit", re.IGNORECASE)  # why one more was not made
_NUMBER = re.compile(r"^\d+/\d+(_\d+)?: ")  # Dynamo's own, of the code that did not fit
_STACK = re.compile(r'^ *File "(.+)", line (\d+), in (.+)$', re.MULTILINE)


class _Never:
    """No object is an instance of this."""


def optimized_module() -> Any:
    """Return the class of what `torch.compile` makes of a module; one without objects where nothing was compiled."""
    return sys.modules["torch._dynamo"].eval_frame.OptimizedModule if "torch._dynamo" in sys.modules else _Never


def graph_breaks() -> tuple[GraphBreak, ...]:
    """Return the places where graphs ended, the most frequent first; none where nothing was compiled."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    found: Counter[tuple[str, Frame | None]] = Counter()
    for reason in getattr(dynamo, "graph_break_reasons", ()):
        found[_first_line(reason.reason), _user_place(reason.user_stack)] += 1
    return tuple(
        GraphBreak(reason=reason, place=place, count=count) for (reason, place), count in found.most_common(_MOST)
    )


def compiled_functions(since_unix_s: float) -> tuple[CompiledFunction, ...]:
    """Return the user's functions that were compiled, those that took longest first.

    Compilations after the first count as such when they began at `since_unix_s` or later: variants that are made
    before training has begun in earnest are as they should be.
    """
    dynamo = sys.modules.get("torch._dynamo.utils")
    records: Iterable[Any] = getattr(dynamo, "get_compilation_metrics", tuple)()
    limit = getattr(sys.modules.get("torch._dynamo.config"), "recompile_limit", 0)
    by_place: dict[Frame, list[Any]] = {}
    refused = None
    if hasattr(dynamo, "get_metrics_context"):  # torch 2.6 on
        refused = {_frame_of(each) for each in records if _LIMIT.search(getattr(each, "fail_reason", None) or "")}
    for record in records:
        name, file, line = record.co_name, record.co_filename, record.co_firstlineno
        if name and file and line and is_user_file(file):
            by_place.setdefault(Frame(file, line, _RESUMED.sub(r"\1", name)), []).append(record)
    found = [_compiled(place, made, int(limit or 0), since_unix_s, refused) for place, made in by_place.items()]
    return tuple(sorted(found, key=lambda function: -function.seconds)[:_MOST])


def _frame_of(record: Any) -> str:
    """Return what Dynamo numbers the functions by that it compiles: the 3 of 3/0, 3/1 and so on."""
    return str(getattr(record, "compile_id", "")).rpartition("/")[0]


def _compiled(
    place: Frame, records: list[Any], limit: int, since_unix_s: float, refused: set[str] | None
) -> CompiledFunction:
    times = [float(getattr(record, "entire_frame_compile_time_s", None) or 0.0) for record in records]
    later = [time for time, record in zip(times[1:], records[1:], strict=True) if _began(record) >= since_unix_s]
    entries = max(int(getattr(record, "cache_size", None) or 0) + 1 for record in records)
    reason = getattr(records[-1], "recompile_reason", None) or ""
    return CompiledFunction(
        place=place,
        compilations=max(len(records), entries),  # Dynamo keeps the last 64 records only
        again=len(later),
        seconds=sum(times),
        again_s=sum(later),
        limit=limit,
        refused=None if refused is None else any(_frame_of(record) in refused for record in records),
        reason=_NUMBER.sub("", _first_line(reason)),
        changed_at=_last_place(reason),
    )


def _began(record: Any) -> float:
    """Return when a compilation began, in seconds since 1970; 0 where the record does not tell."""
    return float(getattr(record, "start_time", None) or 0.0)


def _user_place(stack: Iterable[Any]) -> Frame | None:
    """Return the innermost user line of a stack as Dynamo gives it, outermost first."""
    own = [line for line in stack if is_user_file(line.filename)]
    return Frame(own[-1].filename, own[-1].lineno or 0, own[-1].name) if own else None


def _last_place(reason: str) -> Frame | None:
    """Return the innermost user line of the stack that Dynamo writes below a reason, outermost first."""
    own = [Frame(file, int(line), name) for file, line, name in _STACK.findall(reason) if is_user_file(file)]
    return own[-1] if own else None


def _first_line(text: str) -> str:
    """Return the first line of a reason without the source that Dynamo puts behind it."""
    lines = [line.partition("  #")[0].strip() for line in text.splitlines() if line.strip()]
    return lines[0][:_LENGTH] if lines else ""


PROBE: Probe[DeepContext] = Probe(
    name="compilations",
    make=lambda deep: deep,
    causes={"breaks": lambda deep: graph_breaks(), "compiled": lambda deep: compiled_functions(deep.since_unix_s)},
)
