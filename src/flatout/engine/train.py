"""A whole training under a recipe, seen from outside: the script's own command line, streams, signals and exit code.

The script stays in our process group and keeps our standard streams, so that the terminal treats it as it would
without us. What a terminal sends (Ctrl-C) reaches both of us; what somebody sends to us alone is handed on. With no
fix to apply nothing is injected either: the script then runs as if it had been started by hand.
"""

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flatout.engine.process.target import Target
from flatout.engine.provenance import Here
from flatout.errors import NothingMeasured
from flatout.fixes.checkpoint.rescuer import wait_for_rescuers
from flatout.fixes.core.catalog import find_fix
from flatout.foreign_load import ForeignLoad
from flatout.loader_account import LoaderAccount
from flatout.schema.codec import write_order
from flatout.schema.order import ORDER_VARIABLE, EditedFile, Order
from flatout.schema.trial import Selection

if TYPE_CHECKING:
    from flatout.engine.live_view import Onlooker, WatchedTraining

__all__ = ["ORDER_FILE", "Act", "Trained", "train", "train_observed"]

ORDER_FILE = "under-recipe.json"
"""An order of this name asks for fixes alone: processes that do not import torch are left as they are."""

_ACTS_FILE = "acts.jsonl"  # as in fixes/core/under_recipe.py
_INJECT = Path(__file__).resolve().parents[1] / "inject"
_PR_SET_PDEATHSIG = 1
_HANDED_ON = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")
_BY_THE_KERNEL = 0x80  # si_code of a signal that no process sent: a key of the terminal


@dataclass(slots=True)
class Act:
    """What one fix did, over all processes of the script."""

    selection: Selection
    hits: dict[str, int] = field(default_factory=dict)
    failures: dict[str, int] = field(default_factory=dict)  # reason: processes
    loaders: dict[tuple[str, str], LoaderAccount] = field(default_factory=dict)  # by data set and line
    stood_back: str = ""  # why it left a place alone at which it could have acted


@dataclass(slots=True)
class Trained:
    """How a training ended, and what was done in it."""

    exit_code: int
    acts: list[Act]
    found: Here = field(default_factory=Here)  # what the processes that trained have told of themselves
    ranks: dict[int, int] = field(default_factory=dict)  # rank: steps, of all its processes
    took_s: float = 0.0  # from the start of the command to its end
    stepped_s: float = 0.0  # to the last step
    foreign_share: float = 0.0  # of all cores, that other programs used meanwhile
    notes: list[str] = field(default_factory=list)


def train(
    target: Target,
    selections: Sequence[Selection],
    onlooker: "Onlooker | None" = None,
    *,
    edited: Sequence[EditedFile] = (),
) -> Trained:
    """Run `target` to its end under `selections`; return its exit code, 128 + n where signal n ended it.

    `edited`: what the edits among them make of their files.

    An `onlooker` is shown how it goes; the light probes are attached for that, and output that would go to the terminal
    goes to it.

    Raises:
        NothingMeasured: the command could not be started.
    """
    if not selections and onlooker is None:
        return Trained(_exit_code(_run(target, dict(os.environ))), [])
    with tempfile.TemporaryDirectory(prefix="flatout-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        (folder / "parts").mkdir()
        live = onlooker is not None
        order = _write_order(target, folder, selections, edited, live=live)
        environment, begin, beside = _environment(order, selections), time.monotonic(), ForeignLoad()
        if onlooker is None:
            code = _exit_code(_run(target, environment))
        else:
            from flatout.engine.live_view import WatchedTraining

            with WatchedTraining(target.name, folder, onlooker) as following:
                code = _exit_code(_run(target, environment, following))
        took_s, ended_unix_s, foreign = time.monotonic() - begin, time.time(), beside.share()
        wait_for_rescuers(folder)
        trained, last_step_unix_s = _trained(code, selections, folder)
        trained.took_s, trained.foreign_share = took_s, foreign
        trained.stepped_s = max(0.0, took_s - (ended_unix_s - last_step_unix_s)) if trained.ranks else 0.0
        return trained


def _write_order(
    target: Target, folder: Path, selections: Sequence[Selection], edited: Sequence[EditedFile], *, live: bool
) -> Path:
    """Write what the processes of the script are to do, and return the file."""
    order = Order(
        mode="run",
        folder=str(folder),
        script=target.name,
        protect_files=False,
        fixes=tuple(selections),
        edited=tuple(edited),
        live=live,
    )
    write_order(order, folder / ORDER_FILE)
    return folder / ORDER_FILE


def train_observed(target: Target, order: Path) -> int:
    """Run `target` to its end with the probes that the order file asks for; return its exit code as `train` does.

    Raises:
        NothingMeasured: the command could not be started.
    """
    return _exit_code(_run(target, _environment(order, ())))


def _environment(order: Path, selections: Sequence[Selection]) -> dict[str, str]:
    """Return the script's environment: ours, what the fixes need where the user has set nothing, and the way in."""
    needed: dict[str, str] = {}
    for selection in selections:
        fix = find_fix(selection.fix)
        needed |= fix.environment if fix is not None else {}
    paths = [str(_INJECT), os.environ.get("PYTHONPATH", "")]
    injected = {"PYTHONPATH": os.pathsep.join(path for path in paths if path), ORDER_VARIABLE: str(order)}
    return {**needed, **os.environ, **injected}


# -- the process ----------------------------------------------------------------------------------------------------


def _run(target: Target, environment: Mapping[str, str], following: "WatchedTraining | None" = None) -> int:
    """Run the command line to its end; return its exit code as `subprocess` does, negative for a signal."""
    sys.stdout.flush()
    sys.stderr.flush()
    with _signals_blocked() as (handed_on, before):
        try:
            process = subprocess.Popen(
                target.command,
                env=dict(environment),
                preexec_fn=_before_exec(before),
                stdout=following.terminal.stdout if following is not None else None,
                stderr=following.terminal.stderr if following is not None else None,
            )
        except OSError as error:
            why = error.strerror or str(error)
            raise NothingMeasured(f"{target.command[0]} could not be started ({why}).") from None
        if following is not None:
            following.started()
        while process.poll() is None:
            _hand_on(process, handed_on)
        return process.returncode


@contextlib.contextmanager
def _signals_blocked() -> Iterator[tuple[set[signal.Signals], Any]]:
    """Keep signals waiting, so that they are taken one by one with what is known of their sender."""
    signals = {getattr(signal, name) for name in _HANDED_ON if hasattr(signal, name)}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals | {signal.SIGCHLD})
    ended = signal.signal(signal.SIGCHLD, lambda *_: None)  # one that is ignored would not wait on every system
    try:
        yield signals, before
    finally:
        while signal.sigpending() & signals:  # for the script, which has ended: not for us
            signal.sigwait(signals)
        signal.signal(signal.SIGCHLD, ended)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _hand_on(process: subprocess.Popen[bytes], signals: set[signal.Signals]) -> None:
    """Wait for one signal; hand it on unless the script has received it, too, or it says that the script has ended."""
    if hasattr(signal, "sigwaitinfo"):
        info = signal.sigwaitinfo(signals | {signal.SIGCHLD})
        number, shared = info.si_signo, info.si_code >= _BY_THE_KERNEL
    else:
        number = signal.sigwait(signals | {signal.SIGCHLD})
        shared = number in (signal.SIGINT, signal.SIGQUIT)
    if number != signal.SIGCHLD and not shared:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(number)


def _before_exec(before: Any) -> Callable[[], None]:
    """Return what the new process does first: take signals as we took them, and end with us when we are killed."""
    libc = ctypes.CDLL(None) if sys.platform == "linux" else None

    def prepare() -> None:
        if libc is not None:
            libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    return prepare


def _exit_code(code: int) -> int:
    return code if code >= 0 else 128 - code


# -- what was done --------------------------------------------------------------------------------------------------


def _trained(code: int, selections: Sequence[Selection], folder: Path) -> tuple[Trained, float]:
    """Return what the processes have said, of each its last word, and when the last step of all ended; 0 for none."""
    trained, last_step_unix_s = Trained(code, [Act(selection) for selection in selections]), 0.0
    samples: dict[str, list[int]] = {}
    found: dict[str, Any] = {}
    accounts: dict[tuple[int, int, str, str], LoaderAccount] = {}
    for said in _last_words(folder / _ACTS_FILE):
        for number, (act, site) in enumerate(zip(trained.acts, said["sites"], strict=False)):
            for name, count in site["hits"].items():
                act.hits[name] = act.hits.get(name, 0) + count
            for told in site["loaders"]:
                account = LoaderAccount(**told)
                key = number, said["rank"], account.dataset, account.place
                accounts[key] = accounts[key].after(account) if key in accounts else account
            act.stood_back = act.stood_back or site["stood_back"]
            if site["failure"]:
                act.failures[site["failure"]] = act.failures.get(site["failure"], 0) + 1
        for name, sizes in said["samples"].items():
            samples.setdefault(name, []).extend(sizes)
        if said["steps"]:
            trained.ranks[said["rank"]] = trained.ranks.get(said["rank"], 0) + said["steps"]
            last_step_unix_s = max(last_step_unix_s, said["last_step_unix_s"])
            found = said
        trained.notes.extend(note for note in said["notes"] if note not in trained.notes)
    for (number, _, dataset, place), account in accounts.items():
        known, walked = trained.acts[number].loaders, (dataset, place)
        known[walked] = known[walked].beside(account) if walked in known else account
    trained.found = Here(
        python=found.get("python", ""),
        torch=found.get("torch", ""),
        devices=(found["device"],) if found.get("device") else (),
        world_size=found.get("world_size", 0),
        samples=samples,
    )
    trained.notes += _not_attached(folder)
    return trained, last_step_unix_s


def _last_words(path: Path) -> list[dict[str, Any]]:
    words: dict[int, dict[str, Any]] = {}
    with contextlib.suppress(OSError), path.open(encoding="utf-8") as file:
        for line in file:
            with contextlib.suppress(ValueError):  # cut off by a full disk
                said = json.loads(line)
                words[said["pid"]] = said
    return list(words.values())


def _not_attached(folder: Path) -> list[str]:
    """Return what kept the fixes out of a process, one line each."""
    parts = folder / "parts"
    failed = {path.read_text(encoding="utf-8", errors="replace").strip() for path in parts.glob("failed-*.txt")}
    if not any(parts.glob("python-*")):
        return [
            "flatout could not attach to any Python process of the script, so no fix was applied:"
            " PYTHONPATH was ignored (python -S, -I, -E) or overwritten"
        ]
    return [f"could not attach: {text.splitlines()[-1]}" for text in sorted(failed) if text]
