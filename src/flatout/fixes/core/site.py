"""Where a fix acts: the seams, the outermost modules and the flags it may touch in the training's process.

Everything a fix does goes through its `Site`, so that switching it off, undoing it, counting what it did and failing
open are implemented once. A fix that raises is switched off with one line of warning, and the training goes on.
"""

import sys
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from flatout.fixes.core.shared_switch import SharedSwitch
from flatout.schema.trial import Selection

if TYPE_CHECKING:
    from flatout.loader_account import LoaderAccount
    from flatout.probe.core.seams import Hits, Seams
    from flatout.probe.model.modules import ModuleWatch

__all__ = ["Make", "OutermostModules", "Site", "say"]

Make = Callable[[Callable[..., Any]], Callable[..., Any]]
"""From the original function its replacement."""

_WORKERS = "in workers"  # where processes act that were forked from this one


class Site:
    """The place one fix acts at.

    `hits` counts what the fix really did, by the name of the thing it touched: a fix that never acted is reported as
    NOT_APPLIED. `enabled` says whether it acts now; it changes between two steps only. `purpose` says what the script
    is run for: a training ("run"), or a trial of it ("timing", "verify") whose results are thrown away. `step_worth`
    says how many steps of the untouched script one step under the fix does the work of. `loaders()` says what became of
    each loader, of a fix that serves them. `stood_back` says why it left a place alone.
    """

    def __init__(self, selection: Selection, seams: "Seams", modules: "ModuleWatch", purpose: str = "run") -> None:
        """Act at nothing yet; switched off."""
        self.purpose = purpose
        self.selection = selection
        self.enabled = False
        self.failure = self.stood_back = ""
        self.step_worth = 1.0
        self.loaders: Callable[[], list[LoaderAccount]] = list
        self._hits: dict[str, int] = {}
        self._reach: SharedSwitch | None = None
        self._seams = seams
        self._switches: list[tuple[Callable[[], None], Callable[[], None]]] = []
        self.outermost = OutermostModules(self, modules)

    # -- what a fix may do --------------------------------------------------------------------------------------

    @property
    def hits(self) -> dict[str, int]:
        """What the fix has done, by the name of the thing it touched."""
        if self._reach is not None and (number := self._reach.hits()):
            self._hits[_WORKERS] = number
        return self._hits

    def hit(self, name: str) -> None:
        """Count that the fix has acted on `name`."""
        if self._reach is not None and self._reach.elsewhere:
            self._reach.hit()
        else:
            self._hits[name] = self._hits.get(name, 0) + 1

    def wrap(self, dotted: str, make: Make, *, in_workers: bool = False, always: bool = False) -> bool:
        """Replace `package.module:Class.attribute` by `make(original)` while the fix is switched on.

        Return False when there is no such attribute. The replacement counts its own hits. `in_workers`: processes that
        are forked later follow the switch, too, in whatever state they were forked: for arms of trials, since what
        they did stays counted. `always`: while it is switched off, too; the replacement then acts only while `enabled`.
        """
        if in_workers:
            self._reach = self._reach or SharedSwitch()

        def both(original: Callable[..., Any], hits: "Hits") -> Callable[..., Any]:
            changed = make(original)

            def call(*args: Any, **kwargs: Any) -> Any:
                return (changed if always or self._acts() else original)(*args, **kwargs)

            return call

        return self._seams.wrap(dotted, both)

    def switch(self, on: Callable[[], None], off: Callable[[], None]) -> None:
        """Call `on` when the fix is switched on and `off` when it is switched off: for flags of the process."""
        self._switches.append((on, off))

    def stand_back(self, reason: str) -> None:
        """Note why the fix leaves a place alone; the first reason is told where it never acts."""
        self.stood_back = self.stood_back or reason.splitlines()[0][:300]

    def fail(self, error: BaseException | str) -> None:
        """Note an error, or the reason, for which the fix cannot act here: it is off for good, the training goes on."""
        reason = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
        self.failure = self.failure or reason.splitlines()[0][:300]
        self.disable()

    # -- switching ----------------------------------------------------------------------------------------------

    def enable(self) -> None:
        """Switch the fix on."""
        if self.enabled or self.failure:
            return
        self.enabled = True
        if self._reach is not None:
            self._reach.on = True
        try:
            for on, _ in self._switches:
                on()
            self.outermost.change()
        except Exception as error:
            self.fail(error)

    def disable(self) -> None:
        """Switch it off: what it changed is put back, its wrappers let every call through."""
        if not self.enabled:
            return
        self.enabled = False
        if self._reach is not None and not self._reach.elsewhere:
            self._reach.on = False
        self.outermost.put_back()
        for _, off in reversed(self._switches):
            off()

    def _acts(self) -> bool:
        reach = self._reach
        return reach.on if reach is not None and reach.elsewhere else self.enabled


def say(site: Site, line: str) -> None:
    """Tell the user of a training, in one line on stderr, what has become of a fix."""
    if site.purpose == "run":
        sys.stderr.write(f"flatout: {site.selection.label}: {line}\n")
        sys.stderr.flush()


class OutermostModules:
    """The outermost trained modules that a fix acts on: the model, its DDP wrapper or its compiled wrapper."""

    def __init__(self, site: Site, modules: "ModuleWatch") -> None:
        """Act on none yet; a failure is the site's."""
        self.wanted = False  # the fix acts on such modules, or around their calls
        self._site = site
        self._modules = modules
        self._inner: Any = None  # calls of modules inside of others
        self._changes: list[tuple[Callable[[Any], None], Callable[[Any], None]]] = []
        self._applied: list[tuple[weakref.ref[Any], Callable[[Any], None]]] = []
        modules.on_root.append(self._found)

    def each(self, apply: Callable[[Any], None], revert: Callable[[Any], None]) -> None:
        """Call `apply(module)` for every outermost trained module, now and as they appear, and `revert` when off."""
        self.wanted = True
        self._changes.append((apply, revert))

    def around_forward(
        self,
        around: Callable[[Any, Callable[..., Any]], Callable[..., Any]],
        *,
        innermost: bool = False,
        always: bool = False,
    ) -> None:
        """Call every outermost trained module through `around(module, inner)` while the fix is switched on.

        `inner` is the module's own call; what `around` returns is called in its place with the same arguments. It
        runs at every forward pass, so keep what can be kept. `innermost`: inside what other fixes put around, where
        `inner` is the module's own call and nothing else. `always`: also where no gradients are asked for, in
        evaluation mode, and around modules that are not trained.
        """
        self.wanted = True
        site = self._site

        def guarded(module: Any, inner: Callable[..., Any]) -> Callable[..., Any]:
            if not site.enabled:
                return inner
            try:
                return around(module, inner)
            except Exception as error:
                site.fail(error)
                return inner

        there = self._modules.around_always if always else self._modules.around
        there.insert(0 if innermost else len(there), guarded)

    def inside(self, module: Any, around: Callable[[Any, Callable[..., Any]], Callable[..., Any]]) -> None:
        """Call `module`, which stands inside another one, through `around(module, inner)` while the fix is on.

        Only where nothing is compiled: such a call would cut the graph of the module around it. `take_inside` ends it.
        """
        from flatout.probe.model.module_calls import OwnCalls

        site, self._inner = self._site, self._inner or OwnCalls()
        beneath = self._inner.beneath(module)

        def call(*args: Any, **kwargs: Any) -> Any:
            inner = beneath(module) or module._call_impl
            return (around(module, inner) if site.enabled else inner)(*args, **kwargs)

        self._inner.put(module, call)

    def take_inside(self) -> None:
        """Leave the modules inside of others to themselves again."""
        if self._inner is not None:
            self._inner.undo()

    def change(self) -> None:
        """Change those that are there."""
        for module in self._modules.roots():
            self._found(module)

    def put_back(self) -> None:
        """Put back what was changed."""
        while self._applied:
            ref, revert = self._applied.pop()
            module = ref()
            if module is not None:
                revert(module)

    def _found(self, module: Any) -> None:
        if not self._site.enabled or any(ref() is module for ref, _ in self._applied):
            return
        try:
            for apply, revert in self._changes:
                apply(module)
                self._applied.append((weakref.ref(module), revert))
        except Exception as error:
            self._site.fail(error)
