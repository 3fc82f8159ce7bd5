"""One observed execution of the script: start it under the guard, follow it, end it in time."""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from flatout.engine.process.guard import NOTES_FILE, end_left_over
from flatout.engine.process.journal_claims import drop, write_claim
from flatout.engine.process.private_world import HARMFUL_FILE
from flatout.engine.process.restore import restore_files
from flatout.engine.process.target import Target
from flatout.engine.process.utilization import UtilizationSampler
from flatout.schema.run import Utilization
from flatout.state_folder import STATE_VARIABLE, state_folder

__all__ = ["Execution", "Outcome", "read_notes", "session_folder"]

_PACKAGE = Path(__file__).resolve().parents[2]
_GUARD = "import sys; sys.path.insert(0, sys.argv.pop()); from flatout.engine.process.guard import main; main()"
_GRACE_S = 6.0  # for a script's own finally blocks once the recording is complete
_POLL_S = 0.1
_TAIL_BYTES = 16 * 1024
_OVERLAY_ERRORS = (b"Invalid cross-device link", b"Value too large for defined data type", b"No space left on device")
_ATTACH_S = 5.0  # a Python that is observed says so at once

TRACKERS_OFF = {
    "WANDB_MODE": "disabled",
    "WANDB_DISABLED": "true",
    "WANDB_SILENT": "true",
    "COMET_MODE": "disabled",
    "NEPTUNE_MODE": "debug",
    "CLEARML_OFFLINE_MODE": "1",
    "DVCLIVE_TEST": "true",
    "AIM_DISABLED": "1",
    "SWANLAB_MODE": "disabled",
}
"""Experiment trackers are switched off by their own variables: a diagnosis is no experiment."""


def session_folder(folder: Path) -> Path:
    """Return the folder of the diagnosis or tune that the execution in `folder` belongs to."""
    return folder.parents[1] if folder.parent.name == "trials" else folder


def read_notes(session: Path) -> list[str]:
    """Return what the guards of a session had to say about files, each once, in order."""
    try:
        text = (session / "files" / NOTES_FILE).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return list(dict.fromkeys(line for line in text.splitlines() if line))


@dataclass(slots=True)
class Outcome:
    """How one execution ended."""

    exit_code: int | None = None
    stopped_by: str = ""  # "", "recorded", "budget", "attach", of a timing also "stalled", "decided"
    wall_s: float = 0.0
    quiet_s: float = 0.0  # at the end: since the last record, where someone followed that
    utilization: tuple[Utilization, ...] = ()
    launch_error: str = ""
    private: bool = False  # the script had a private copy of the file system
    ended: bool = False
    parts: list[Path] = field(default_factory=list)


class Execution:
    """A script under observation, from start to end."""

    def __init__(
        self, target: Target, folder: Path, order: Path, mode: str, environment: Mapping[str, str] | None = None
    ) -> None:
        """Prepare; `order` is the order file, `mode` as in it, `environment` added to what the script starts with."""
        self._target = target
        self._folder = folder
        self._order = order
        self.log = folder / f"output-{mode}.log"
        self._mode = mode
        self._added = environment or {}
        self.parts = folder / "parts"
        self._guard: subprocess.Popen[bytes] | None = None
        self._journal: Path | None = None
        self._messages = b""
        self._tails: dict[Path, _Tail] = {}

    def run(self, budget_s: float, watch: Callable[[int, float], None]) -> Outcome:
        """Run to the end of the recording, of the script, or of `budget_s`; `watch(steps, seconds)` follows it.

        A script that fails for its private copy of the file system is started once more without one.
        """
        before = set(self.parts.glob("*"))
        outcome = self._run_once(budget_s, watch)
        if not self._failed_for_its_copy(outcome):
            return outcome
        (session_folder(self._folder) / "files" / HARMFUL_FILE).touch()
        for part in set(self.parts.glob("*")) - before:
            part.unlink(missing_ok=True)
        self._tails.clear()
        self._messages = b""
        return self._run_once(max(1.0, budget_s - outcome.wall_s), watch)

    def _failed_for_its_copy(self, outcome: Outcome) -> bool:
        """Say whether the script met an error that an overlay gives where the user's own files would not."""
        if not outcome.private or outcome.exit_code in (0, None) or outcome.stopped_by:
            return False
        with contextlib.suppress(OSError), self.log.open("rb") as file:
            file.seek(max(0, self.log.stat().st_size - _TAIL_BYTES))
            tail = file.read()
            return any(sign in tail for sign in _OVERLAY_ERRORS)
        return False

    def _run_once(self, budget_s: float, watch: Callable[[int, float], None]) -> Outcome:
        start = time.monotonic()
        outcome = Outcome()
        sampler = UtilizationSampler()
        try:
            self._start()
            self._follow(start, budget_s, watch, outcome, sampler)
        except OSError as error:  # a full disk, mostly
            outcome.launch_error = f"{error.filename or self._folder}: {error.strerror}"
        finally:
            self.end()
            outcome.wall_s = time.monotonic() - start
            outcome.utilization = sampler.samples()
            self._read_messages(outcome)
            if self._guard is not None and self._guard.stdout is not None:
                self._guard.stdout.close()
        return outcome

    def end(self) -> None:
        """End the script and everything it started; wait until the user's files are back."""
        if self._guard is None:
            return
        with contextlib.suppress(OSError):
            assert self._guard.stdin is not None
            self._guard.stdin.close()
        try:
            self._guard.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._guard.kill()
            self._guard.wait()
        if self._guard.returncode:
            end_left_over(self._folder)
        restore_files(self._folder)
        if self._journal is not None:
            drop(self._journal)

    def _start(self) -> None:
        working = os.path.abspath(self._target.folder or os.getcwd())
        self._journal = write_claim(self._folder, working)
        (self._folder / "files" / "kept").mkdir(exist_ok=True)
        (self._journal / "known").mkdir(exist_ok=True)
        (self._journal / "working").write_bytes(os.fsencode(working))
        body = {
            "command": list(self._target.command),
            "environment": self._environment(),
            "working": working,
            "folder": str(self._folder),
            "session": str(session_folder(self._folder)),
            "journal": str(self._journal),
            "log": self.log.name,
        }
        spec = self._journal / "guard.json"
        with open(os.open(spec, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            json.dump(body, file)
        self._guard = subprocess.Popen(
            [sys.executable, "-I", "-c", _GUARD, str(spec), str(_PACKAGE.parent)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        assert self._guard.stdout is not None
        os.set_blocking(self._guard.stdout.fileno(), False)

    def _environment(self) -> dict[str, str]:
        paths = [str(_PACKAGE / "inject"), os.environ.get("PYTHONPATH", "")]
        added: Mapping[str, str] = {
            "PYTHONPATH": os.pathsep.join(path for path in paths if path),
            "FLATOUT_ORDER": str(self._order),
            STATE_VARIABLE: state_folder(),
            "MLFLOW_TRACKING_URI": (self._folder / "files" / "mlflow").as_uri(),
            **TRACKERS_OFF,
        }
        return {**self._added, **os.environ, **added}

    def _follow(
        self,
        start: float,
        budget_s: float,
        watch: Callable[[int, float], None],
        outcome: Outcome,
        sampler: UtilizationSampler,
    ) -> None:
        assert self._guard is not None
        complete_at = 0.0
        while self._guard.poll() is None:
            elapsed = time.monotonic() - start
            self._read_messages(outcome)
            steps, num_ended, num_recording = self._progress()
            watch(steps, elapsed)
            sampler.sample(self._guard.pid, elapsed)
            if num_ended and not complete_at:
                complete_at = time.monotonic()
            grace_s = _GRACE_S if num_ended >= num_recording else _GRACE_S / 2
            if complete_at and time.monotonic() - complete_at > grace_s:
                outcome.stopped_by = "recorded"
                return
            if elapsed > _ATTACH_S and not complete_at and self._passes_us_by():
                outcome.stopped_by = "attach"
                return
            if elapsed > budget_s:
                outcome.stopped_by = "budget"
                return
            time.sleep(_POLL_S)

    def _passes_us_by(self) -> bool:
        """Say whether Python runs and none of it has told us: then nothing is observed, and no file protected."""
        assert self._guard is not None
        if any(self.parts.glob("python-*")):
            return False
        with contextlib.suppress(psutil.Error):
            for process in psutil.Process(self._guard.pid).children(recursive=True):
                if process.name().startswith("python") and time.time() - process.create_time() > _ATTACH_S:
                    return True
        return False

    def _progress(self) -> tuple[int, int, int]:
        """Return steps so far, recordings that are complete, and recordings in all."""
        for path in self.parts.glob(f"{self._mode}-rank*.jsonl"):
            self._tails.setdefault(path, _Tail(path))
        for tail in self._tails.values():
            tail.read()
        tails = [tail for tail in self._tails.values() if tail.steps or not tail.ended]
        steps = max((tail.steps for tail in tails), default=0)
        return steps, sum(tail.stopped for tail in tails), sum(bool(tail.steps) for tail in tails)

    def _read_messages(self, outcome: Outcome) -> None:
        if self._guard is None or self._guard.stdout is None:
            return
        with contextlib.suppress(OSError, ValueError):
            self._messages += self._guard.stdout.read() or b""
        for line in self._messages.splitlines():
            with contextlib.suppress(ValueError):
                message: dict[str, Any] = json.loads(line)
                outcome.exit_code = message.get("exit_code", outcome.exit_code)
                outcome.launch_error = message.get("failed", outcome.launch_error)
                outcome.private = message.get("private", outcome.private)


class _Tail:
    """A part file read as it grows, for its number of steps and its end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self.steps = 0
        self.ended = False
        self.stopped = False

    def read(self) -> None:
        with contextlib.suppress(OSError), self._path.open("rb") as file:
            file.seek(self._offset)
            data = file.read()
            complete = data.rfind(b"\n") + 1
            self._offset += complete
            for line in data[:complete].splitlines():
                if line.startswith(b'{"kind": "steps"') or line.startswith(b'{"kind":"steps"'):
                    self.steps += len(json.loads(line)["wall_ns"])
                elif line.startswith(b'{"kind":"end"'):
                    self.ended = True
                    self.stopped = json.loads(line)["value"]["reason"] in ("steps", "probe failed")
