"""The backward passes of a few steps of the deep run: by forward line, by call, and what Python runs in them.

First the functions of the user's that the engine calls are followed for three steps; then, for three more, nodes are
made with the line that made them, and timed one by one in the last two. Where gradients are thrown away before anybody
reads them, passes that leave them out are offered for a trial. Nothing is looked at where functions are compiled.
"""

import contextlib
from collections import Counter
from collections.abc import Callable
from threading import get_ident
from typing import Any

import torch
from torch.compiler import is_dynamo_compiling

from flatout.probe.backward.embedding_tables import TableLook
from flatout.probe.backward.forward_lines import ForwardLines
from flatout.probe.backward.leaf_use import LeafUse
from flatout.probe.backward.node_sums import calls, lines, lost_apart, needless_passes, whole
from flatout.probe.backward.python_entries import PythonEntries
from flatout.probe.backward.recorded_pass import NodeTimer, PassKey, RecordedPass, graph_of
from flatout.probe.core.probe import DeepContext, Probe
from flatout.probe.core.seams import Hits, Seams
from flatout.probe.core.user_places import caller
from flatout.schema.backward import BackwardFacts
from flatout.schema.run import Step

__all__ = ["PROBE", "BackwardWatch"]

_PYTHON_FROM, _NODES_FROM, _TIMED_FROM, _UNTIL = 3, 7, 8, 10  # the steps after which each begins, and all ends
_LONG_NS = 700_000_000  # so long a step, and one of them is timed
_SETTLED_BY = 22  # the step by which what the last pass has made is read, or thrown away: critics step several times
_MOST_RUNS = 200_000  # nodes, over all passes


class BackwardWatch:
    """Looks at the passes of a few steps."""

    def __init__(self, deep: DeepContext) -> None:
        """Look at nothing yet."""
        self._deep = deep
        self.lines = ForwardLines()
        self._python, self._use, self._timer, self._tables = (
            PythonEntries(),
            LeafUse(deep.unread),
            NodeTimer(),
            TableLook(),
        )
        self._passes: list[RecordedPass] = []
        self._without = LeftOut()
        self._looks = ""  # "python", "nodes", "times": of nodes, or "settling": who reads what they gave
        self._inside = False
        self._step = self._steps = 0

    def install(self, seams: Seams) -> None:
        """Lie around what begins a pass."""
        self.lines.install(seams)
        self._use.install()
        seams.wrap("torch.autograd:backward", lambda original, hits: self._around(original, hits, True))
        seams.wrap("torch.autograd:grad", lambda original, hits: self._around(original, hits, False))

    def step(self, step: Step, number: int) -> None:
        """Take one finished step."""
        self._step = number
        with contextlib.suppress(Exception):
            self._turn(step, number)

    def _turn(self, step: Step, number: int) -> None:
        self._python.steps += self._looks == "python"
        self._steps += self._looks == "times"
        possible = not self._deep.event_log.tracing.possible
        if number == _PYTHON_FROM and possible:
            self._looks = "python"
        elif number == _NODES_FROM:
            self._looks = "nodes" if possible and self.lines.begin() else ""
            if self._looks:
                self._use.begin()
        elif number == _TIMED_FROM and self._looks == "nodes":
            self._looks = "times"
        elif self._looks == "times" and (number >= _UNTIL or step.wall_ns > _LONG_NS):
            self._looks = "settling"
            self.lines.end()
        if self._looks == "settling" and (not self._use.waits or number >= _SETTLED_BY):
            self.stop()
            self._offer()

    def stop(self) -> None:
        """Look at nothing more."""
        self._looks = ""
        self.lines.end()
        self._use.end()

    # -- passes -------------------------------------------------------------------------------------------------

    def _around(self, original: Callable[..., Any], hits: Hits, adds: bool) -> Callable[..., Any]:
        log = self._deep.event_log

        def run(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            if (log.tracing.possible and is_dynamo_compiling()) or self._inside or get_ident() != log.thread:
                return original(tensors, *args, **kwargs)
            if not (self._looks or self._without.on) or _transformed():
                return original(tensors, *args, **kwargs)
            hits.count += 1
            self._inside = True
            ends: Callable[[], None] | None = None
            try:
                with contextlib.suppress(Exception):
                    ends = self._begin(tensors, args, kwargs, adds)
                    if adds and self._without.on:
                        kwargs |= self._without.inputs(caller(2), args, kwargs, self._step)
                return original(tensors, *args, **kwargs)
            finally:
                self._inside = False
                if ends is not None:
                    with contextlib.suppress(Exception):
                        ends()

        return run

    def _begin(self, tensors: Any, args: Any, kwargs: Any, adds: bool) -> Callable[[], None] | None:
        """Prepare for a pass; return what is to be done when it is over."""
        if not (self._looks and self._deep.in_step()):
            return None
        if self._looks == "settling":
            self._use.look_for_lost()
            return None
        if self._looks == "python":
            self._python.begin()
            return self._python.end
        if sum(len(each.nodes) for each in self._passes) > _MOST_RUNS:
            return None
        place = caller(3)
        ordinal = sum(each.place == place and each.step == self._step for each in self._passes)
        creates = bool(_option("create_graph", 2 if adds else 3, args, kwargs))
        graph = graph_of(one.grad_fn for one in (tensors if isinstance(tensors, list | tuple) else (tensors,)))
        recorded = RecordedPass(place, self._step, ordinal, adds, creates, [run for _, run in graph])
        recorded.timed = self._looks == "times"
        self._use.before_pass(recorded)
        self._passes.append(recorded)
        if recorded.timed or adds:
            self._timer.follow(graph)

        def ends() -> None:
            self._timer.end()
            self._use.after_pass(recorded)
            self._tables.look(recorded)

        return ends

    # -- gradients that are thrown away -------------------------------------------------------------------------

    def _lost(self) -> Callable[[RecordedPass], set[object]]:
        """Return what tells which gradients of a pass are thrown away: whole parts of graphs, where there is one."""
        made = [one for each in self._deep.optimizers() for group in each.param_groups for one in group["params"]]
        held = set(map(id, made))

        def lost(recorded: RecordedPass) -> set[object]:
            return self._use.needless(recorded, held)

        def apart(recorded: RecordedPass) -> set[object]:
            return lost_apart(recorded, lost(recorded))

        return apart if any(map(apart, self._passes)) else lost

    def _offer(self) -> None:
        """Offer passes without what is thrown away, unless a hook or another rank may miss it."""
        distributed, lost = torch.distributed, self._lost()
        together = distributed.is_available() and distributed.is_initialized()
        for recorded in self._passes if not (together or self._python.seen_hooks()) else ():
            needless = lost(recorded)
            if needless and recorded.adds and not recorded.creates_graph:
                self._without.learn(recorded, needless)
        if self._without.known():
            self._deep.offer("discarded", self._without.switch)

    def facts(self) -> BackwardFacts | None:
        """Return what was seen; None where nothing was."""
        timed = [each for each in self._passes if each.timed]
        python, found = self._python.facts(), None
        with contextlib.suppress(Exception):
            steps = max(1, self._steps)
            found = BackwardFacts(
                steps=self._steps,
                seconds=whole(timed, steps),
                lines=lines(timed, steps),
                calls=calls(timed, steps),
                python=python,
                tables=self._tables.facts(timed, steps, self._deep.optimizers()),
                needless=needless_passes(timed, steps, self._lost()),
            )
        return found if found is not None and (timed or python) else None


class LeftOut:
    """Passes that make only the gradients that somebody reads."""

    def __init__(self) -> None:
        """None is known."""
        self.on = False
        self._wanted: dict[PassKey, list[Any]] = {}
        self._seen: Counter[tuple[int, object]] = Counter()

    def learn(self, recorded: RecordedPass, needless: set[object]) -> None:
        """Take a pass as it was seen, and what is thrown away of it."""
        wanted = [leaf for leaf in recorded.leaves() if leaf.identity not in needless]
        if wanted and all(leaf.is_parameter for leaf in wanted):
            self._wanted[recorded.key] = [leaf.ref for leaf in wanted]
        else:
            self._wanted.pop(recorded.key, None)

    def known(self) -> bool:
        """Return whether there is such a pass."""
        return bool(self._wanted)

    def switch(self, on: bool) -> None:
        """Make passes so, or as the script has them."""
        self.on = on

    def inputs(self, place: Any, args: Any, kwargs: Any, step: int) -> dict[str, Any]:
        """Return the argument that leaves the rest out."""
        ordinal = self._seen[step, place]
        self._seen[step, place] += 1
        wanted = [tensor for ref in self._wanted.get((place, ordinal), ()) if (tensor := ref()) is not None]
        special = _option("create_graph", 2, args, kwargs) or len(args) > 3 or kwargs.get("inputs") is not None
        return {"inputs": wanted} if wanted and not special else {}


def _option(name: str, position: int, args: Any, kwargs: Any) -> Any:
    return kwargs.get(name, args[position] if len(args) > position else None)


def _transformed() -> bool:
    """Return whether `torch.func` computes gradients of its own."""
    return torch._C._functorch.peek_interpreter_stack() is not None


PROBE: Probe[BackwardWatch] = Probe(
    name="backward-passes",
    make=BackwardWatch,
    install=BackwardWatch.install,
    step=BackwardWatch.step,
    stop=BackwardWatch.stop,
    causes={"backward": BackwardWatch.facts},
    after=("unused-gradients",),
)
