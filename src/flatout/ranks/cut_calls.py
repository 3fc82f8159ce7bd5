"""Calls of modules, cut by rows: each rank computes its part of the batch, and gets the results of all.

A call is cut where the script makes it, outside of any other module. One that cannot be cut is left whole, and the
calls in it are looked at in its place: outside of cut calls all ranks hold the same tensors, wherever that is.
"""

import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from threading import get_ident
from time import perf_counter
from typing import Any, NoReturn

import torch

from flatout.probe.core.seams import Hits, Seams
from flatout.ranks.account import RankAccount
from flatout.ranks.call_kinds import CallKind, kind_of, known_kind
from flatout.ranks.comparison import ResultTrace, fingerprint, trace_of
from flatout.ranks.exchanged import Tie, joined_parts, taken_rows
from flatout.ranks.fitness import parameters_of, parts_of, refusal
from flatout.ranks.gradients import LocalSpans
from flatout.ranks.group import RankGroup, Together
from flatout.ranks.kept_values import remembered
from flatout.ranks.local_rows import HERE, OwnRows
from flatout.ranks.named_values import NamedValues
from flatout.ranks.proof import CutForm, CutResult, NotTried, prove
from flatout.ranks.rows import Dim, RowPlan, shares
from flatout.ranks.trees import flattened, left_as_given, put_together
from flatout.ranks.whole_call import Call, NotEqual

__all__ = ["CutCalls"]

_SELDOM = 64  # calls from one comparison of ranks to the next, later in a training
_MOST_KINDS = 24  # of calls of one module that are tried
_DEEPEST = 2  # levels below a call that was left whole
_LEAST_SHARE = 0.2  # of the parameters of the call above
_LEAST_TRAINED = 0.02  # of the parameters that its optimizer has
_MOST_PATHS = 16  # ways that calls of one kind may go
_MOST_INNER_CALLS = 4  # of one module in a call above: more of them cost more than they spare

_SMALL = "there is too little in it to be shared"
_FEW = "fewer rows than ranks"  # of one call: the next one may have more
_MISFIT = "the results of some of its calls have another form than those that were compared"
_UNLIKE = "a result that has no row in it is another one in each rank"
_WRITES = "it writes to its arguments"

_MOST_NODES = (1 << 31) - 1
_UNTRAINED = (None, 0)

_Original = Callable[..., Any]


@dataclass(slots=True)
class _Known:
    """What is known of one module."""

    ref: weakref.ref[Any]
    kinds: list[CallKind] = field(default_factory=list)
    named: NamedValues | None = None
    inner: bool = False  # called too often in a call above
    inner_calls: int = 0  # in the call above that runs


@dataclass(frozen=True, slots=True)
class _Met:
    """What all ranks have found of one call by rows."""

    path: tuple[int, ...]  # nodes of the graph that it has made in each rank
    misfit: str  # why its results cannot be joined
    differs: bool  # a result without rows, from rank to rank
    trace: ResultTrace  # of this rank


@dataclass(slots=True)
class _Above:
    """A call that was left whole, while the calls in it are looked at."""

    num_elements: int
    called: dict[int, _Known] = field(default_factory=dict)


class CutCalls:
    """The seam at `Module.__call__` of one rank."""

    def __init__(
        self, group: RankGroup, spans: LocalSpans, account: RankAccount, stop: Callable[[str], NoReturn]
    ) -> None:
        """Know of no module yet."""
        self._group = group
        self._spans = spans
        self._account = account
        self._stop = stop
        self._known: dict[int, _Known] = {}
        self._above: list[_Above] = []
        self._calls = 0
        self._trained: dict[int, tuple[Any, int]] = {}  # by parameter: how many values its optimizer has
        self.off = ""  # why no call is cut any more

    def install(self, seams: Seams, *, observed: bool = False) -> None:
        """Take every call of a module that is no part of another one's.

        `observed`: what a call is given, and what it returns, is looked at by others, who are to see the whole batch.
        They stand between `__call__` and `_call_impl`; a module that was compiled in place is called past the latter.
        """
        here = HERE

        def make(original: _Original, hits: Hits) -> _Original:
            def call(module: Any, *args: Any, **kwargs: Any) -> Any:
                if torch.compiler.is_compiling() or here.inside or get_ident() != here.main:
                    return original(module, *args, **kwargs)
                return self._outside(original, module, args, kwargs)

            return call

        def make_optimizer(original: _Original, hits: Hits) -> _Original:
            def init(optimizer: Any, *args: Any, **kwargs: Any) -> None:
                original(optimizer, *args, **kwargs)
                held = sum(one.numel() for group in optimizer.param_groups for one in group["params"])
                for one in (each for group in optimizer.param_groups for each in group["params"]):
                    gone = partial(self._trained.pop, id(one))  # with the reference, in the place of a default
                    self._trained[id(one)] = weakref.ref(one, gone), held

            return init

        seams.wrap(f"torch.nn.modules.module:Module.{'_call_impl' if observed else '__call__'}", make)
        seams.wrap("torch.optim.optimizer:Optimizer.__init__", make_optimizer)

    # -- one call -----------------------------------------------------------------------------------------------

    def _outside(self, original: _Original, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Make a call that is no part of another one."""
        modules = [] if self.off or _is_transformed() else parts_of(module)
        parameters = parameters_of(modules)
        if not parameters:
            return original(module, *args, **kwargs)
        call = Call(module, *flattened((args, kwargs)), args, kwargs)
        known = self._of(module)
        if not self._worth(known, parameters):
            self._account.whole(type(module).__name__, _SMALL)
            return self._whole(original, call)
        self._meet(call, parameters)
        kind = self._kind(original, call, known, modules)
        form = kind if isinstance(kind, str) else kind.form
        total = form.plan.rows(_shapes(call.leaves)) if isinstance(form, CutForm) else 0
        if form == _FEW or (isinstance(form, CutForm) and total < self._group.size):
            self._account.few(type(module).__name__)
            return self._whole(original, call)
        if isinstance(kind, str) or isinstance(form, str):
            self._account.whole(type(module).__name__, str(form))
            return self._parts(original, call)
        return self._by_rows(original, call, kind, modules)

    def _by_rows(self, original: _Original, call: Call, kind: CallKind, modules: list[Any]) -> Any:
        """Make a call that was proven; one that turns out to go another way than those is proven before it counts."""
        assert isinstance(kind.form, CutForm) and call.named is not None
        form, name = kind.form, type(call.module).__name__
        put_back = remembered(modules, call.objects, call.named)
        result = self._cut(original, call.module, call.leaves, call.structure, form.plan)
        met = self._compared(result, form)
        reason, new = met.misfit, kind.results.gives(met.trace.numbers, fresh=kind.fresh) or met.path not in kind.paths
        if reason or met.differs or (new and not kind.fresh):
            put_back()
            reason = reason or ("" if kind.fresh else self._on_new_path(original, call, kind))
            reason = reason or (_UNLIKE if met.differs else "")
            if reason:
                kind.form = reason if met.misfit and (kind.results.misfit() or reason == _WRITES) else kind.form
                self._account.whole(name, reason)
                return self._parts(original, call)
            result = self._cut(original, call.module, call.leaves, call.structure, form.plan)
            again = self._compared(result, form)
            if again.misfit or again.differs:
                self._stop(f"{name} gives other results where it is called once more")
        kind.paths.add(met.path)
        self._account.cut(name, result.tie.rows.shares)
        return put_together(joined_parts(result, form.results, self._stop), form.structure)

    def _goes_another_way(self, original: _Original, call: Call, kind: CallKind, modules: list[Any]) -> bool:
        """Return whether a call by rows makes other nodes than those before; it is made and does not count."""
        assert isinstance(kind.form, CutForm) and call.named is not None
        put_back = remembered(modules, call.objects, call.named)
        result = self._cut(original, call.module, call.leaves, call.structure, kind.form.plan)
        put_back()
        met = self._compared(result, kind.form)
        given = kind.results.gives(met.trace.numbers, fresh=False)
        return given or bool(met.misfit) or met.differs or met.path not in kind.paths

    def _compared(self, result: CutResult, form: CutForm) -> _Met:
        """Compare with the other ranks what a call by rows has given, before anything of it is joined."""
        own = trace_of(result, form)
        told, alike = self._group.numbers(Together.PATH, own.values << 31 | min(result.nodes, _MOST_NODES), own.kind)
        path = tuple(one & _MOST_NODES for one in told)
        differs = len({one >> 31 for one in told}) > 1
        misfit = "" if alike and own.fits else _WRITES if alike and result.wrote else _MISFIT
        return _Met(path, misfit, differs, own)

    def _on_new_path(self, original: _Original, call: Call, kind: CallKind) -> str:
        """Prove a call that goes another way than those before; return why it is left whole, "" where it need not."""
        if len(kind.paths) >= _MOST_PATHS:
            kind.form = "it goes another way in most calls"
            return kind.form
        found = self._proven(original, call, kind.form)
        if isinstance(found, str):
            if not isinstance(found, NotTried):
                kind.form = found
            return found
        return "" if found == kind.form else "it would be cut another way"

    def _meet(self, call: Call, parameters: Sequence[Any]) -> None:
        """Make sure that all ranks make this call, now and then also that their weights are the same."""
        self._calls += 1
        name = type(call.module).__name__
        self._group.place = lambda: f"call {self._calls}, of {name} with {_told(call.leaves)}"
        seldom = self._calls % _SELDOM == 0
        if seldom or self._group.compares:
            weights = parameters if (seldom or self._calls == 1) and HERE.sharding is None else ()
            held = [one for one in weights if not torch.nn.parameter.is_lazy(one)]
            self._group.meet(Together.CALL, fingerprint(name, [*call.leaves, *held]), always=seldom)

    def _of(self, module: Any) -> _Known:
        known = self._known.get(id(module))
        if known is None or known.ref() is not module:
            known = self._known[id(module)] = _Known(weakref.ref(module))
        return known

    def _kind(self, original: _Original, call: Call, known: _Known, modules: list[Any]) -> CallKind | str:
        """Return the kind of a call, with how it is cut, as before, or found out now; or why it is left whole."""
        reason = refusal(call.module, modules)
        if reason:
            return reason
        known.named = known.named or NamedValues(modules)
        kind, values = kind_of(call, modules), known.named.now()
        before = known_kind(known.kinds, kind)
        call.named = known.named
        if before is not None:
            return self._as_before(original, call, before, values, modules) or before
        if _first_rows(call.leaves) < self._group.size:
            return _FEW
        if len(known.kinds) >= _MOST_KINDS:
            return f"it is called in more than {_MOST_KINDS} ways"
        kind.form = self._proven(original, call)
        kind.named.add(values)
        known.kinds.append(kind)
        return kind

    def _as_before(
        self, original: _Original, call: Call, kind: CallKind, values: tuple[Any, ...], modules: list[Any]
    ) -> str:
        """Take up a call of a kind that is known; now and then, and where values have changed, it is proven again.

        Return why this one call is left whole, "" where it need not be.
        """
        form, asked = kind.form, kind.meets(values)
        again = isinstance(form, (CutForm, NotTried)) and (asked or kind.is_due)
        least = self._least(form, call)
        if least == 0 or (not again and least != 1):
            return ""
        if least == 1 and kind.results.single != "":
            return self._single(original, call, kind)
        if not again:
            return ""
        found = self._proven(original, call, kind.form)
        if isinstance(found, NotTried):
            return ""
        right = found == form or not isinstance(form, CutForm) or (asked and not kind.skipped)
        if not right and not self._goes_another_way(original, call, kind, modules):  # earlier calls may have been wrong
            reason = found if isinstance(found, str) else "it would be cut another way"
            self._stop(f"{type(call.module).__name__} was cut by rows, and cannot be any more: {reason}")
        kind.form, kind.fresh, kind.skipped = found, True, kind.skipped and not asked
        return ""

    def _least(self, form: CutForm | str, call: Call) -> int:
        """Return how many rows the last rank gets of a call, -1 where it is not cut."""
        if not isinstance(form, CutForm):
            return -1
        return form.plan.rows(_shapes(call.leaves)) // self._group.size

    def _single(self, original: _Original, call: Call, kind: CallKind) -> str:
        """Return why a call of which some rank gets one row is left whole; what is done to one row is proven once."""
        if kind.results.single is None:
            found = self._proven(original, call, kind.form)
            if isinstance(found, NotTried):
                return found
            kind.results.single = found if isinstance(found, str) else "" if found == kind.form else _MISFIT
            kind.fresh = not kind.results.single
        return kind.results.single

    def _proven(self, original: _Original, call: Call, before: CutForm | str = "") -> CutForm | str:
        def run(module: Any, leaves: list[Any], structure: Any) -> Any:
            args, kwargs = put_together(leaves, structure)
            found = original(module, *args, **kwargs)
            if not left_as_given(args, kwargs, leaves, structure):
                raise NotEqual(_WRITES)
            return found

        def cut(module: Any, leaves: list[Any], structure: Any, plan: RowPlan) -> CutResult:
            return self._cut(original, module, leaves, structure, plan)

        def join(result: CutResult, dims: Sequence[Dim]) -> list[Any]:
            return joined_parts(result, dims, self._stop)

        begin = perf_counter()
        known = before.plan if isinstance(before, CutForm) else None
        found = prove(call, run, cut, join, self._group, known)
        self._account.took("proof", perf_counter() - begin)
        return found

    # -- cut ----------------------------------------------------------------------------------------------------

    def _cut(self, original: _Original, module: Any, leaves: list[Any], structure: Any, plan: RowPlan) -> CutResult:
        """Call a module with this rank's rows; return what it gives, as leaves with their structure."""
        rows = self._rows(plan, leaves)
        tie = Tie(module, rows, self._group)
        own = [taken_rows(leaf, dim, tie) for leaf, dim in zip(leaves, plan.dims, strict=True)]
        args, kwargs = put_together(own, structure)
        versions = _versions(own)
        begin = self._spans.now()
        HERE.rows = rows
        try:
            result = original(module, *args, **kwargs)
        finally:
            HERE.rows = None
        end = self._spans.now()
        self._spans.note(begin, end, type(module).__name__)
        written = versions != _versions(own)
        if written and not self._group.tried:
            self._stop(f"{type(module).__name__} writes to a tensor that it is given: each rank has some rows of it")
        wrote = written or not left_as_given(args, kwargs, own, structure)
        return CutResult(*flattened(result), tie, end - begin, wrote)

    def _rows(self, plan: RowPlan, leaves: Sequence[Any]) -> OwnRows:
        total = plan.rows(_shapes(leaves))
        parts, rank = shares(total, self._group.size), self._group.rank
        dim = next(dim for dim in plan.dims if dim is not None)
        return OwnRows(total, sum(parts[:rank]), parts[rank], dim, parts, plan.draws)

    # -- left whole ---------------------------------------------------------------------------------------------

    def _whole(self, original: _Original, call: Call) -> Any:
        """Make a call with the whole batch on every rank, all that is in it, too."""
        HERE.whole = True
        try:
            return original(call.module, *call.args, **call.kwargs)
        finally:
            HERE.whole = False

    def _parts(self, original: _Original, call: Call) -> Any:
        """Make a call with the whole batch on every rank, and look at the calls in it."""
        if len(self._above) >= _DEEPEST:
            return self._whole(original, call)
        self._above.append(_Above(_num_elements(call.module.parameters())))
        try:
            return original(call.module, *call.args, **call.kwargs)
        finally:
            self._above.pop()

    def _worth(self, known: _Known, parameters: Sequence[Any]) -> bool:
        """Return whether there is enough in a module for its call to be cut, in a call that was left whole, too."""
        if not self._above:
            trained = max(self._trained.get(id(one), _UNTRAINED)[1] for one in parameters)
            return not trained or _num_elements(parameters) >= _LEAST_TRAINED * trained
        above = self._above[-1]
        if id(known) not in above.called:
            above.called[id(known)] = known
            known.inner_calls = 0
        known.inner_calls += 1
        known.inner = known.inner or known.inner_calls > _MOST_INNER_CALLS
        return not known.inner and _num_elements(parameters) >= _LEAST_SHARE * above.num_elements


def _is_transformed() -> bool:
    """Return whether what runs is traced, or part of a `torch.func` transform."""
    return torch._C._get_tracing_state() is not None or torch._C._functorch.peek_interpreter_stack() is not None


def _versions(leaves: Sequence[Any]) -> list[int]:
    """Return how often each tensor was written to."""
    return [one._version for one in leaves if isinstance(one, torch.Tensor) and not one.is_inference()]


def _shapes(leaves: Sequence[Any]) -> list[tuple[int, ...] | None]:
    return [tuple(leaf.shape) if isinstance(leaf, torch.Tensor) else None for leaf in leaves]


def _first_rows(leaves: Sequence[Any]) -> int:
    """Return the first dimension of the first tensor that has one."""
    return next((leaf.shape[0] for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.dim()), 2**31)


def _num_elements(parameters: Iterable[Any]) -> int:
    return sum(one.numel() for one in parameters if not torch.nn.parameter.is_lazy(one))


def _told(leaves: Sequence[Any]) -> str:
    shapes = [str(list(leaf.shape)) for leaf in leaves if isinstance(leaf, torch.Tensor)]
    return " ".join(shapes[:4]) or "no tensor"
