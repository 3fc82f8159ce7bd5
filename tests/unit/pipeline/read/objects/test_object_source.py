"""Objects by their place in a list: what is asked for, what is answered from the disk, and what has changed."""

import os
import time

import pytest
from benchmarks.object_server import ObjectServer
from tests.unit.pipeline.read.objects.served import held, options_of, put

from flatout.errors import BadObject
from flatout.pipeline.read.objects import obstore_reads
from flatout.pipeline.read.objects.object_source import ObjectList, ObjectSource

pytest.importorskip("obstore")


def source(server, urls, **more):
    return ObjectSource(ObjectList(urls, options=options_of(server), opened=time.time(), **more))


def asked(server):
    found = [status for _, _, status in server.asked]
    server.asked.clear()
    return sorted(found)


def test_objects_of_a_batch_are_asked_for_at_once_and_come_in_order(tmp_path):
    with ObjectServer(latency_s=0.3) as server:
        urls = put(server, 64)
        places = [*range(63, -1, -1), 5, 5]
        got = list(source(server, urls, in_flight=64).several(places))
        assert got == [held(server, urls[place]) for place in places]
        assert server.most_under_way > 16 and len(server.asked) == 64
        server.most_under_way = 0
        list(source(server, urls, in_flight=4, max_bytes=0).several(range(12)))
        assert 1 < server.most_under_way <= 4


def test_a_pass_asks_once_and_a_run_asks_whether_they_are_as_they_were(server):
    urls = put(server, 10)
    first = source(server, urls)
    wanted = [held(server, url) for url in urls]
    assert list(first.several(range(10))) == wanted and asked(server) == [200] * 10
    assert list(first.several(range(10))) == wanted and asked(server) == []
    time.sleep(0.01)
    later = source(server, urls)
    assert list(later.several(range(10))) == wanted and asked(server) == [304] * 10
    assert [later.one(at) for at in range(10)] == wanted and asked(server) == []
    assert list(first.several(range(10))) == wanted and asked(server) == []
    never = source(server, urls, immutable=True)
    assert list(never.several(range(10))) == wanted and asked(server) == []


def test_what_another_process_of_the_same_data_set_asked_for_counts(server):
    urls = put(server, 3)
    opened = time.time() - 1
    one, other = (ObjectSource(ObjectList(urls, options=options_of(server), opened=opened)) for _ in range(2))
    list(one.several(range(3)))
    assert asked(server) == [200] * 3
    list(other.several(range(3)))
    assert asked(server) == []


def test_a_time_that_lies_ahead_is_not_trusted(server):
    [url] = put(server, 1)
    first = source(server, [url])
    first.one(0)
    [path] = first.cache._folder.glob("*/*.object")
    os.utime(path, (time.time() + 1000, time.time() + 1000))
    source(server, [url]).one(0)
    assert asked(server) == [200, 304]


@pytest.mark.parametrize("max_bytes", [None, 0])
def test_an_object_that_changes_is_the_old_one_or_an_error(server, max_bytes):
    [url] = put(server, 1)
    first = source(server, [url], max_bytes=max_bytes)
    old = first.one(0)
    server.objects["/bucket/photos/000.bin"] = b"new"
    if max_bytes is None:
        assert first.one(0) == old
        assert source(server, [url]).one(0) == b"new"  # another run has it as it is now
    for ask in (lambda: first.one(0), lambda: list(first.several([0]))):
        with pytest.raises(BadObject, match="has changed since it was first read"):
            ask()
    server.objects["/bucket/photos/000.bin"] = old
    assert first.one(0) == old


def test_two_names_of_the_same_bytes_are_no_change(monkeypatch):
    with ObjectServer() as server:
        [url] = put(server, 1)
        first = source(server, [url], max_bytes=0)
        old = first.one(0)
        server._written["/bucket/photos/000.bin"] = (held(server, url), "of-another-server", 0.0)
        assert first.one(0) == old and len(server.asked) == 2


def test_ranges_of_one_object_are_kept_apart(server):
    [url] = put(server, 1)
    data = held(server, url)
    parts = [(0, 10), (10, 500), None, (0, 11)]
    made = source(server, [url] * 4, ranges=parts)
    for _ in range(2):
        assert list(made.several(range(4))) == [data[:10], data[10:500], data, data[:11]]
    assert asked(server) == [200, 206, 206, 206]


def test_stores_of_one_name_are_kept_apart(server):
    [url] = put(server, 1)
    with ObjectServer() as other:
        other.objects["/bucket/photos/000.bin"] = b"of the other"
        for _ in range(2):
            assert source(server, [url], immutable=True).one(0) == held(server, url)
            assert source(other, [url], immutable=True).one(0) == b"of the other"


def test_what_cannot_be_told_apart_is_asked_for_each_time(monkeypatch):
    with ObjectServer(etags="none", dated=False) as server:
        [url] = put(server, 1)
        made = source(server, [url])
        made.one(0)
        made.one(0)
        assert asked(server) == [200, 200]
        server.objects["/bucket/photos/000.bin"] = b"new"
        assert made.one(0) == b"new"
    monkeypatch.setattr(obstore_reads, "_REST_S", -9.0)
    with ObjectServer(etags="none") as server:
        [url] = put(server, 1)
        assert source(server, [url]).one(0) == source(server, [url]).one(0)
        assert asked(server) == [200, 200]


def test_an_error_leaves_nothing_waiting(server):
    urls = put(server, 40)
    server.faults["/bucket/photos/003.bin"] = ["404"] * 9
    made = source(server, urls, in_flight=2)
    with pytest.raises(BadObject, match=r"003\.bin is missing"):
        list(made.several(range(40)))
    time.sleep(0.1)
    seen = len(server.asked)
    assert seen < 12
    server.faults.clear()
    assert list(made.several(range(40))) == [held(server, url) for url in urls]


def test_files_are_read_where_they_lie(tmp_path):
    for at in range(20):
        (tmp_path / f"{at}").write_bytes(b"%d" % at)
    made = ObjectSource(ObjectList([str(tmp_path / f"{at}") for at in range(20)]))
    for _ in range(2):
        assert list(made.several(range(20))) == [b"%d" % at for at in range(20)]
    assert not made.cache._folder.exists()
    (tmp_path / "7").write_bytes(b"another")
    with pytest.raises(BadObject, match="has changed"):
        made.one(7)


def test_a_slow_disk_is_asked_on_threads(tmp_path, monkeypatch):
    from flatout.pipeline.read.objects.local_reads import LocalReader

    under_way, most, read = [0], [0], LocalReader.read

    def slow(self, request):
        under_way[0] += 1
        most[0] = max(most[0], under_way[0])
        time.sleep(0.02)
        under_way[0] -= 1
        return read(self, request)

    monkeypatch.setattr(LocalReader, "read", slow)
    for at in range(20):
        (tmp_path / f"{at}").write_bytes(b"%d" % at)
    made = ObjectSource(ObjectList([str(tmp_path / f"{at}") for at in range(20)]))
    assert list(made.several(range(20))) == [b"%d" % at for at in range(20)]
    assert most[0] > 4
