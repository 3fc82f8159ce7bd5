"""One connection from each launcher to each other, by which a machine that fails, or is gone, is noticed.

Launchers have nothing to do but wait, so that a rank may compute for hours without being taken for dead. Whether a
machine is there is asked of its kernel (TCP keep-alive), which answers also while the launcher there is stopped or gets
no processor. That a launcher has gone is the end of its connection.
"""

import contextlib
import json
import secrets
import selectors
import socket
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from flatout.schema.ranks import FailureKind, RankFailure

__all__ = ["SILENT_S", "HostLinks"]

SILENT_S = 15
"""For so long a machine may leave everything unanswered."""

_PROBE_S = 3
_SETTINGS = {  # names that a system does not have are left out
    "TCP_KEEPIDLE": _PROBE_S,
    "TCP_KEEPINTVL": _PROBE_S,
    "TCP_KEEPCNT": SILENT_S // _PROBE_S - 1,
    "TCP_USER_TIMEOUT": SILENT_S * 1000,
}
_MEET_S = 60.0
_GREET_S = 5.0
_LONGEST = 4096  # bytes of a line
_DONE = {"done": True}


@dataclass(slots=True)
class _Link:
    host: str
    way: socket.socket
    text: bytes = b""
    done: bool = False


class HostLinks:
    """What this machine hears of the others, and tells them."""

    def __init__(self, host: str, hosts: int, address: str, heard: Callable[[RankFailure], None]) -> None:
        """Take this machine's name, the number of all, the own address, and who is told of a failure."""
        self._host, self._hosts, self._address = host, hosts, address
        self._heard = heard
        self._links: list[_Link] = []
        self._closed = False

    def meet(self, store: Any, number: int) -> None:
        """Connect with all the others, found by the store that all of them see, as machine `number` of them.

        Raises:
            OSError: one cannot be reached, or does not come within a minute.
            RuntimeError: the store has gone.
        """
        if number == 0:
            store.set("key", secrets.token_hex(16))
        key = store.get("key").decode()
        family = socket.AF_INET6 if ":" in self._address else socket.AF_INET
        with socket.create_server((self._address, 0), family=family, backlog=self._hosts) as server:
            address, port = self._address or socket.gethostname(), server.getsockname()[1]
            place = {"host": self._host, "address": address, "port": port}
            store.set(f"host/{number}", json.dumps(place))
            for other in range(number):
                self._greet(json.loads(store.get(f"host/{other}")), {"key": key, "host": self._host})
            until = time.monotonic() + _MEET_S
            while len(self._links) < self._hosts - 1:
                server.settimeout(_left_of(until))
                self._welcome(server.accept()[0], key)

    def _greet(self, place: dict[str, Any], words: dict[str, str]) -> None:
        way = socket.create_connection((place["address"], place["port"]), timeout=_MEET_S)
        way.sendall(_line(words))
        self._add(place["host"], way)

    def _welcome(self, way: socket.socket, key: str) -> None:
        """Take a connection of one that knows the key; whoever else looks at this port is left alone."""
        text, until = b"", time.monotonic() + _GREET_S
        with contextlib.suppress(OSError, ValueError, RecursionError):
            while not text.endswith(b"\n") and len(text) < _LONGEST:
                way.settimeout(_left_of(until))
                found = way.recv(1)
                if not found:
                    break
                text += found
            words = json.loads(text)
            if isinstance(words, dict) and secrets.compare_digest(str(words.get("key")).encode(), key.encode()):
                self._add(str(words.get("host")), way)
                return
        way.close()

    def _add(self, host: str, way: socket.socket) -> None:
        way.settimeout(None)
        way.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _SETTINGS.items():
            if hasattr(socket, name):
                way.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        self._links.append(_Link(host, way))

    # -- once all have met --------------------------------------------------------------------------------------

    def follow(self) -> None:
        """Hear all others until each has ended."""
        with selectors.DefaultSelector() as ways:
            for link in self._links:
                ways.register(link.way, selectors.EVENT_READ, link)
            while ways.get_map() and not self._closed:
                for key, _ in ways.select():
                    self._take(key.data, ways)

    def _take(self, link: _Link, ways: selectors.BaseSelector) -> None:
        """Read what one has sent."""
        try:
            found = link.way.recv(_LONGEST)
        except ConnectionError:  # reset: the launcher was killed
            found = b""
        except OSError:
            ways.unregister(link.way)
            self._tell_of(link, FailureKind.UNREACHABLE)
            return
        if not found:
            ways.unregister(link.way)
            self._tell_of(link, FailureKind.GONE)
            return
        *lines, link.text = (link.text + found)[-_LONGEST:].split(b"\n")
        for line in lines:
            self._take_line(link, line)

    def _take_line(self, link: _Link, line: bytes) -> None:
        with contextlib.suppress(ValueError, TypeError, KeyError, RecursionError):  # not ours
            words = json.loads(line)
            failure = RankFailure(**{**words, "kind": FailureKind(words["kind"])}) if words != _DONE else None
            link.done = True
            if failure is not None:
                self._heard(failure)

    def _tell_of(self, link: _Link, kind: FailureKind) -> None:
        if not link.done and not self._closed:
            self._heard(RankFailure(kind=kind, host=link.host))

    def tell(self, failure: RankFailure | None) -> None:
        """Tell all others how the ranks of this machine have ended, None where they have ended well."""
        for link in self._links:
            with contextlib.suppress(OSError):
                link.way.sendall(_line(asdict(failure) if failure is not None else _DONE))

    def close(self) -> None:
        """End all connections."""
        self._closed = True
        for link in self._links:
            with contextlib.suppress(OSError):
                link.way.shutdown(socket.SHUT_RDWR)


def _left_of(until: float) -> float:
    """Return the seconds that are left until then.

    Raises:
        TimeoutError: none are.
    """
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError("not all machines have come in time")
    return left


def _line(words: dict[str, Any]) -> bytes:
    return json.dumps(words).encode() + b"\n"
