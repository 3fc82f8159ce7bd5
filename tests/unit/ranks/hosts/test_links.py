"""What launchers of several machines tell each other, and see of each other's end."""

import contextlib
import json
import socket
import threading
import time

import pytest

from flatout.ranks.hosts import links
from flatout.ranks.hosts.links import HostLinks
from flatout.schema.ranks import FailureKind, RankFailure

PATIENCE_S = 10


class Store:
    """What torch's store does, in this process."""

    def __init__(self):
        self.there, self.changed = {}, threading.Condition()

    def set(self, key, text):
        with self.changed:
            self.there[key] = text.encode()
            self.changed.notify_all()

    def get(self, key):
        with self.changed:
            assert self.changed.wait_for(lambda: key in self.there, PATIENCE_S), key
            return self.there[key]


class Met:
    """Hosts that have met, each followed in a thread."""

    def __init__(self, number, before=lambda store: None):
        self.heard = [[] for _ in range(number)]
        self.links = [HostLinks(f"host{at}", number, "127.0.0.1", self.heard[at].append) for at in range(number)]
        store = Store()
        meetings = [threading.Thread(target=link.meet, args=(store, at)) for at, link in enumerate(self.links)]
        for thread in meetings[:-1]:
            thread.start()
        before(store)
        meetings[-1].start()
        for thread in meetings:
            thread.join(PATIENCE_S)
        assert [len(link._links) for link in self.links] == [number - 1] * number
        self.threads = [threading.Thread(target=link.follow) for link in self.links]
        for thread in self.threads:
            thread.start()

    def wait(self, at, number=1):
        until = time.monotonic() + PATIENCE_S
        while len(self.heard[at]) < number and time.monotonic() < until:
            time.sleep(0.01)
        return self.heard[at]

    def break_off(self, at, *, reset=False):
        """End a host's connections as the kernel does when its process is killed."""
        for link in self.links[at]._links:
            if reset:
                link.way.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            else:
                link.way.shutdown(socket.SHUT_WR)
            if reset:
                link.way.close()

    def close(self):
        for link in self.links:
            link.close()
        for thread in self.threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()
        for link in self.links:
            for one in link._links:
                with contextlib.suppress(OSError):
                    one.way.close()


@pytest.fixture
def met():
    found = []

    def meet(*words, **more):
        found.append(Met(*words, **more))
        return found[-1]

    yield meet
    for one in found:
        one.close()


KILLED = RankFailure(kind=FailureKind.RANK, host="host1", rank=5, code=-9)


def test_a_failure_is_heard_by_all_others(met):
    hosts = met(3)
    hosts.links[1].tell(KILLED)
    assert hosts.wait(0) == hosts.wait(2) == [KILLED]
    assert hosts.heard[1] == []


def test_a_host_that_ends_without_a_word_is_told_once(met):
    hosts = met(3)
    hosts.break_off(2)
    assert [(one.kind, one.host) for one in hosts.wait(0) + hosts.wait(1)] == [(FailureKind.GONE, "host2")] * 2


def test_a_host_that_has_ended_well_is_no_failure(met):
    hosts = met(2)
    hosts.links[0].tell(None)
    hosts.break_off(0)
    hosts.links[1].tell(KILLED)
    assert hosts.wait(0) == [KILLED]
    assert hosts.heard[1] == []


def test_a_failure_told_before_the_end_is_all_that_is_heard(met):
    hosts = met(2)
    hosts.links[0].tell(KILLED)
    hosts.break_off(0)
    hosts.threads[1].join(PATIENCE_S)
    assert hosts.heard[1] == [KILLED]


@pytest.mark.parametrize(
    ("error", "kind"),
    [(ConnectionResetError(), FailureKind.GONE), (TimeoutError(), FailureKind.UNREACHABLE),
     (OSError("No route to host"), FailureKind.UNREACHABLE)],
)  # fmt: skip
def test_an_error_of_the_network_is_told_from_a_process_that_was_killed(met, monkeypatch, error, kind):
    hosts = met(2)

    class Broken:
        def __getattr__(self, name):
            return getattr(hosts.links[0]._links[0].way, name)

        def recv(self, length):
            raise error

    class Ways:
        def unregister(self, way):
            pass

    link = hosts.links[0]._links[0]
    broken = type(link)(link.host, Broken())
    hosts.links[0]._take(broken, Ways())
    assert [one.kind for one in hosts.heard[0]] == [kind]


def test_who_does_not_know_the_key_is_not_taken_for_a_host(met):
    strangers = []

    def before(store):
        place = json.loads(store.get("host/0"))
        for words in (
            b"hello\n",
            b'{"key": "", "host": "evil"}\n',
            b"[]\n",
            b"",
            b"[" * 4096,
            '{"key": "ä"}\n'.encode(),
        ):
            way = socket.create_connection((place["address"], place["port"]))
            way.sendall(words)
            way.shutdown(socket.SHUT_WR)
            strangers.append(way)

    hosts = met(2, before=before)
    for way in strangers:
        way.close()
    assert [one.host for one in hosts.links[0]._links] == ["host1"]


def test_words_that_nobody_can_read_are_left_alone(met):
    hosts = met(2)
    for words in (b"not json\n", b"7\n", b'{"kind": "unknown"}\n', b'{"other": 1}\n'):
        hosts.links[0]._links[0].way.sendall(words)
    hosts.links[0].tell(KILLED)
    assert hosts.wait(1) == [KILLED]


def test_connections_are_probed_while_nothing_is_said(met):
    way = met(2).links[0]._links[0].way
    assert way.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        assert way.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 15_000


def test_a_host_that_does_not_come_is_not_waited_for_without_end(monkeypatch):
    monkeypatch.setattr(links, "_MEET_S", 0.3)
    alone = HostLinks("host0", 2, "127.0.0.1", lambda failure: None)
    with pytest.raises(TimeoutError):
        alone.meet(Store(), 0)


def test_one_that_greets_a_byte_at_a_time_does_not_hold_up_the_others(met, monkeypatch):
    monkeypatch.setattr(links, "_GREET_S", 0.3)

    def slow(store):
        place = json.loads(store.get("host/0"))
        way = socket.create_connection((place["address"], place["port"]), timeout=PATIENCE_S)

        def send():
            with way, contextlib.suppress(OSError):
                while True:
                    way.sendall(b"x")
                    time.sleep(0.05)

        threading.Thread(target=send, daemon=True).start()

    hosts = met(2, slow)
    hosts.links[1].tell(KILLED)
    assert hosts.wait(0) == [KILLED]
