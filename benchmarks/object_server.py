"""A server of objects on loopback, as S3 answers: ETags, ranges, conditions, listings; with latency and faults.

with ObjectServer() as server:                            # on a thread of this process
    server.objects["/bucket/a.jpg"] = data
    server.faults["/bucket/a.jpg"] = ["503", "reset"]     # of the next requests, one each
python benchmarks/object_server.py 1000 100000 0.005      # in a process: objects, bytes, seconds; prints its port
"""

import asyncio
import contextlib
import hashlib
import random
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from email.utils import formatdate
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

FAULTS = ("503", "429", "500", "403", "404", "reset", "reset in the middle", "cut off", "no range", "hang")


class ObjectServer:
    """Objects by their paths, and what was asked for.

    `etags`: how an object is told apart ("strong", "weak", "none"). `dated`: whether answers say when it was written.
    """

    def __init__(self, latency_s: float = 0.0, etags: str = "strong", dated: bool = True) -> None:
        self.objects: dict[str, bytes] = {}
        self.faults: dict[str, list[str]] = defaultdict(list)
        self.asked: list[tuple[str, str, int]] = []  # method, path, status
        self.latency_s, self.etags, self.dated = latency_s, etags, dated
        self.under_way = self.most_under_way = 0
        self.port = 0
        self._written: dict[str, tuple[bytes, str, float]] = {}
        self.connections: set[_Connection] = set()
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()

    def __enter__(self) -> "ObjectServer":
        self._thread = threading.Thread(target=self.serve, daemon=True)
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def serve(self, told: Callable[[int], None] = lambda port: None) -> None:
        asyncio.set_event_loop(self._loop)
        made = self._loop.run_until_complete(self._loop.create_server(lambda: _Connection(self), "127.0.0.1", 0))
        self.port = made.sockets[0].getsockname()[1]
        told(self.port)
        self._ready.set()
        self._loop.run_forever()
        made.close()
        for connection in list(self.connections):
            connection.transport.abort()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    def of(self, path: str) -> tuple[bytes, str, float] | None:
        """Return an object, its ETag and when it was put there."""
        data = self.objects.get(path)
        if data is None:
            return None
        known = self._written.get(path)
        if known is None or known[0] is not data:
            known = self._written[path] = (data, hashlib.md5(data).hexdigest(), time.time())
        return known


class _Connection(asyncio.Protocol):
    def __init__(self, server: ObjectServer) -> None:
        self.server, self.buffer = server, b""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.server.connections.add(self)

    def connection_lost(self, error: Any) -> None:
        self.server.connections.discard(self)

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while b"\r\n\r\n" in self.buffer:
            head, self.buffer = self.buffer.split(b"\r\n\r\n", 1)
            self.server.under_way += 1
            self.server.most_under_way = max(self.server.most_under_way, self.server.under_way)
            if self.server.latency_s:
                self.server._loop.call_later(self.server.latency_s, self.answer, head)
            else:
                self.answer(head)

    def answer(self, head: bytes) -> None:
        self.server.under_way -= 1
        first, *lines = head.decode("latin-1").split("\r\n")
        method, target, _ = first.split(" ")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        path = unquote(target.partition("?")[0])
        faults = self.server.faults.get(path)
        fault = faults.pop(0) if faults else ""
        if fault == "reset":
            self.transport.abort()
        elif fault.isdigit():
            self.send(method, path, int(fault), b"")
        elif fault != "hang":
            self.found(method, target, path, headers, fault)

    def found(self, method: str, target: str, path: str, headers: dict[str, str], fault: str) -> None:
        query = parse_qs(urlsplit(target).query)
        if "list-type" in query:
            return self.send(method, path, 200, self.listing(path.strip("/"), query.get("prefix", [""])[0]))
        there = self.server.of(path)
        if there is None:
            return self.send(method, path, 404, b"<Error><Code>NoSuchKey</Code></Error>")
        data, digest, written = there
        told = {"Last-Modified": formatdate(written, usegmt=True)} if self.server.dated else {}
        etag = f'"{digest}"' if self.server.etags == "strong" else f'W/"{digest}"'
        if self.server.etags != "none":
            told["ETag"] = etag
        if headers.get("if-none-match") == etag and "ETag" in told:
            return self.send(method, path, 304, b"", told)
        if headers.get("if-match", etag) != etag:
            return self.send(method, path, 412, b"", told)
        asked = headers.get("range", "") if fault != "no range" else ""
        if not asked:
            return self.send(method, path, 200, data, told, fault)
        start, _, stop = asked.removeprefix("bytes=").partition("-")
        begin, end = int(start), min(len(data), int(stop) + 1 if stop else len(data))
        if begin >= len(data):
            return self.send(method, path, 416, b"", told)
        told["Content-Range"] = f"bytes {begin}-{end - 1}/{len(data)}"
        return self.send(method, path, 206, data[begin:end], told, fault)

    def send(
        self, method: str, path: str, status: int, body: bytes, told: dict[str, str] | None = None, fault: str = ""
    ) -> None:
        self.server.asked.append((method, path, status))
        lines = [f"HTTP/1.1 {status} .", *(f"{name}: {value}" for name, value in (told or {}).items())]
        lines += [] if status == 304 else [f"Content-Length: {len(body)}"]
        sent = b"" if method == "HEAD" else body[: len(body) // 2] if fault else body
        self.transport.write("\r\n".join([*lines, "", ""]).encode("latin-1") + sent)
        if fault == "reset in the middle":
            self.server._loop.call_later(0.02, self.transport.abort)
        elif fault == "cut off":
            self.transport.close()

    def listing(self, bucket: str, prefix: str) -> bytes:
        keys = [path.removeprefix(f"/{bucket}/") for path in sorted(self.server.objects)]
        entries = []
        for key in keys:
            if key.startswith(prefix):
                data, digest, _ = self.server.of(f"/{bucket}/{key}") or (b"", "", 0.0)
                entries.append(
                    f"<Contents><Key>{escape(key)}</Key><LastModified>2024-01-01T00:00:00.000Z</LastModified>"
                    f"<ETag>&quot;{digest}&quot;</ETag><Size>{len(data)}</Size></Contents>"
                )
        return (
            f"<ListBucketResult><Name>{bucket}</Name><IsTruncated>false</IsTruncated>{''.join(entries)}"
            "</ListBucketResult>"
        ).encode()


def main() -> None:
    number, size, latency_s = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    server, rng = ObjectServer(latency_s), random.Random(0)
    for at in range(number):
        server.objects[f"/bucket/{at:06}.bin"] = at.to_bytes(8, "little") + rng.randbytes(size - 8)
    for path in server.objects:
        server.of(path)
    with contextlib.suppress(KeyboardInterrupt):
        server.serve(lambda port: print(port, flush=True))


if __name__ == "__main__":
    main()
