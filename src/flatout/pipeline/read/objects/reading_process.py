"""A process of its own that asks obstore, for a process that was forked with obstore in it.

obstore's threads do not come along into a forked process: a request there waits for ever. Workers of a DataLoader are
such processes where the script has asked a store before. The reading process ends with the pipe to whoever started it.
"""

import contextlib
import os
import pickle
import signal
import struct
import subprocess
import sys
import threading
import weakref
from concurrent.futures import Future, ThreadPoolExecutor
from typing import IO, Any

from flatout.errors import BadObject
from flatout.pipeline.read.objects.object_reads import ObjectAnswer, ObjectRequest
from flatout.pipeline.read.objects.obstore_reads import ObstoreReader

__all__ = ["ReadingProcess", "serve"]

_HEAD = struct.Struct("<QQ")  # the number of a request, and the bytes of what follows
_START = (
    "import pickle, sys; sys.path[:] = pickle.load(sys.stdin.buffer); "
    "from flatout.pipeline.read.objects.reading_process import serve; serve()"
)


class ReadingProcess:
    """Hands requests to a process that it starts, from many threads at once; serves the process that made it alone.

    Attributes:
        close: ends the process; called at the latest when nobody refers to this any more.
    """

    def __init__(self, options: dict[str, Any], num_threads: int) -> None:
        """Start it."""
        self._lock = threading.Lock()
        self._waiting: dict[int, Future[Any]] = {}
        self._number = 0
        self._process = _started((options, num_threads))
        assert self._process.stdin is not None
        self._asked = self._process.stdin
        listening = (self._process, self._waiting, self._lock)
        self._listener = threading.Thread(target=_listen, args=listening, name="flatout-objects", daemon=True)
        self._listener.start()
        self.close = weakref.finalize(self, _end, self._asked, self._listener)

    def read(self, request: ObjectRequest) -> ObjectAnswer:
        """Return an object.

        Raises:
            BadObject: as the reader there says, or the process has ended.
        """
        answer: ObjectAnswer = self._ask(("read", request))
        return answer

    def names(self, root: str, prefix: str) -> list[str]:
        """Return the keys in a store that begin with `prefix`, sorted.

        Raises:
            BadObject: they cannot be listed.
        """
        found: list[str] = self._ask(("names", root, prefix))
        return found

    def _ask(self, what: tuple[Any, ...]) -> Any:
        future: Future[Any] = Future()
        try:
            with self._lock:
                self._number += 1
                self._waiting[self._number] = future
                _send(self._asked, self._number, pickle.dumps(what))
        except (OSError, ValueError) as error:
            raise _ended(self._process) from error
        return future.result()


def _started(what: Any) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-I", "-c", _START]
    try:
        content = pickle.dumps(sys.path) + pickle.dumps(what)
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    except (OSError, TypeError, AttributeError, pickle.PicklingError) as error:
        raise BadObject(
            f"A process that reads objects could not be started ({type(error).__name__}: {error}).",
            "This process was forked from one that had loaded obstore, and cannot ask a store itself.",
            "Ask for no sample before workers start, or start them by spawn (multiprocessing_context=).",
        ) from error
    assert process.stdin is not None
    with contextlib.suppress(OSError):  # it has ended: whoever asks is told
        process.stdin.write(content)
        process.stdin.flush()
    return process


def _listen(process: "subprocess.Popen[bytes]", waiting: "dict[int, Future[Any]]", lock: threading.Lock) -> None:
    """Hand answers to who waits for them, until there are no more."""
    assert process.stdin is not None and process.stdout is not None
    with process.stdout as answers, contextlib.suppress(OSError, ValueError):
        while (got := _received(answers)) is not None:
            with lock:
                future = waiting.pop(got[0])
            kind, value = pickle.loads(got[1])
            if kind == "error":
                future.set_exception(value)
            else:
                future.set_result(value)
    process.wait()
    with lock, contextlib.suppress(OSError):
        process.stdin.close()
    with lock:
        left = [waiting.pop(number) for number in list(waiting)]
    for future in left:
        future.set_exception(_ended(process))


def _end(asked: IO[bytes], listener: threading.Thread) -> None:
    """End the process, and wait until it has."""
    with contextlib.suppress(OSError):
        asked.close()
    if listener is not threading.current_thread():
        listener.join()


def _ended(process: "subprocess.Popen[bytes]") -> BadObject:
    return BadObject(
        f"The process that reads objects has ended (exit code {process.poll()}).",
        "It was killed, or ran out of memory.",
        "Look for its last words in the log, and start the training again.",
    )


def serve() -> None:
    """Answer what comes on standard input until that ends; what libraries print goes to standard error."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for who has started it
    asked, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    options, num_threads = pickle.load(asked)
    reader, lock = ObstoreReader(options), threading.Lock()

    def answer(number: int, what: tuple[Any, ...]) -> None:
        try:
            found = reader.read(what[1]) if what[0] == "read" else reader.names(*what[1:])
            content = pickle.dumps(("done", found), protocol=5)
        except BadObject as error:
            content = pickle.dumps(("error", error))
        except Exception as error:  # whatever it is, somebody waits for it
            told = BadObject(f"Reading {what[1:]} raised {type(error).__name__}: {error}.", "", "")
            content = pickle.dumps(("error", told))
        with lock:
            _send(answers, number, content)

    with ThreadPoolExecutor(num_threads) as pool:
        while (got := _received(asked)) is not None:
            pool.submit(answer, got[0], pickle.loads(got[1]))
        os._exit(0)  # nobody waits for what is under way


def _send(pipe: IO[bytes], number: int, content: bytes) -> None:
    pipe.write(_HEAD.pack(number, len(content)))
    pipe.write(content)
    pipe.flush()


def _received(pipe: IO[bytes]) -> tuple[int, bytes] | None:
    head = pipe.read(_HEAD.size)
    if len(head) < _HEAD.size:
        return None
    number, length = _HEAD.unpack(head)
    content = pipe.read(length)
    return (number, content) if len(content) == length else None
