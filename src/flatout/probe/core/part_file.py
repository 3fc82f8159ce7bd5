"""The file one process writes while it is observed, appended to as things happen: a kill loses half a second."""

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flatout.schema.codec import SCHEMA, dump_record, step_columns
from flatout.schema.plain import to_plain
from flatout.schema.run import Outside, Step

__all__ = ["PartFile"]

_FLUSH_S = 0.5


class PartFile:
    """Steps and stretches are buffered and written by a thread of its own; everything else at once."""

    def __init__(self, path: Path) -> None:
        """Create the file with its schema line.

        Raises:
            OSError: when it cannot be created; a later failure to write is kept in `error` instead.
        """
        self.path = path
        self.error = ""
        self._steps: list[Step] = []
        self._outside: list[Outside] = []
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._pid = os.getpid()
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self.put_line(dump_record("flatout", {"schema": SCHEMA}))
        self._thread = threading.Thread(target=self._flush_now_and_then, name="flatout-part", daemon=True)

    def begin(self, meanwhile: Callable[[], None] | None = None) -> None:
        """Start the writing thread; `meanwhile` is called before each flush."""
        self._meanwhile = meanwhile
        self._thread.start()

    def step(self, step: Step) -> None:
        """Take one finished step."""
        self._steps.append(step)

    def outside(self, stretch: Outside) -> None:
        """Take one finished stretch outside the steps."""
        self._outside.append(stretch)

    def put(self, kind: str, value: Any) -> None:
        """Write one record with a single value."""
        self.put_line(dump_record(kind, {"value": to_plain(value)}))

    def put_many(self, kind: str, values: Any) -> None:
        """Write one record with several values."""
        self.put_line(dump_record(kind, {"values": to_plain(tuple(values))}))

    def put_line(self, line: str) -> None:
        """Append a line; a full disk is remembered and never raised into the training."""
        if os.getpid() != self._pid or self.error:
            return  # after a line that was cut off, no other: a recording may lack its end, never its middle
        data = line.encode("ascii") + b"\n"
        try:
            while data:
                data = data[os.write(self._file, data) :]
        except OSError as error:
            self.error = self.error or f"{error.strerror} ({self.path.name})"

    def flush(self) -> None:
        """Write what is buffered."""
        with self._lock:
            steps, self._steps = self._steps, []
            outside, self._outside = self._outside, []
            if steps:
                record = {"kind": "steps", **step_columns(steps)}  # holds no circle; looking for one takes a sixth
                self.put_line(json.dumps(record, separators=(",", ":"), check_circular=False))
            if outside:
                self.put_many("outside", outside)

    def close(self) -> None:
        """Write the rest, stop the thread and close the file; what is put afterwards is lost."""
        self._closed.set()
        self.flush()
        if self._pid == os.getpid():
            if self._thread.is_alive():
                self._thread.join()
            self._pid = -1
            os.close(self._file)

    def _flush_now_and_then(self) -> None:
        while not self._closed.wait(_FLUSH_S):
            if self._meanwhile is not None:
                self._meanwhile()
            self.flush()
