"""Readers of a process, and of those that are forked from it."""

import os
import signal
import subprocess
import sys
import time

import pytest
from tests.unit.pipeline.read.objects.served import held, options_of, put

from flatout.pipeline.read.objects import process_readers
from flatout.pipeline.read.objects.fsspec_reads import FsspecReader
from flatout.pipeline.read.objects.local_reads import LocalReader
from flatout.pipeline.read.objects.object_source import ObjectList, ObjectSource
from flatout.pipeline.read.objects.object_urls import location_of
from flatout.pipeline.read.objects.obstore_reads import ObstoreReader
from flatout.pipeline.read.objects.process_readers import ProcessReaders, can_list, listed


def test_each_place_has_its_reader(monkeypatch):
    monkeypatch.setattr(process_readers, "has_obstore", lambda: True)
    readers = ProcessReaders({}, 2)
    kinds = {"/a": LocalReader, "s3://b/a": ObstoreReader, "https://h/a": ObstoreReader, "memory://a": FsspecReader}
    for url, kind in kinds.items():
        assert type(readers.reader_of(location_of(url))) is kind
    assert readers.reader_of(location_of("s3://b/a")) is readers.reader_of(location_of("gs://c/a"))


def test_without_obstore_fsspec_reads(monkeypatch):
    monkeypatch.setattr(process_readers, "has_obstore", lambda: False)
    assert type(ProcessReaders({}, 2).reader_of(location_of("s3://b/a"))) is FsspecReader
    assert not can_list(location_of("s3://b/a"))


def test_the_web_has_no_lists():
    assert not can_list(location_of("https://h/a"))


def test_a_process_that_was_forked_after_a_store_was_asked_reads_too(server):
    """A request that obstore itself made there would wait for ever."""
    pytest.importorskip("obstore")
    urls = put(server, 20)
    made = ObjectSource(ObjectList(urls, options=options_of(server), max_bytes=0, opened=time.time()))
    wanted = [held(server, url) for url in urls]
    assert list(made.several(range(20))) == wanted
    process = os.fork()
    if not process:
        signal.alarm(30)
        os._exit(0 if list(made.several(range(20))) == wanted and made.one(3) == wanted[3] else 1)
    assert os.waitpid(process, 0)[1] == 0
    assert list(made.several(range(20))) == wanted
    assert len(server.asked) == 61


LISTING = """
import sys
from flatout.pipeline.read.objects.object_urls import location_of
from flatout.pipeline.read.objects.process_readers import listed
found = listed(location_of("s3://bucket/photos/0"), {"anon": True, "endpoint_url": sys.argv[1]})
print(found, "obstore" in sys.modules)
"""


@pytest.mark.slow
def test_listing_loads_nothing_that_forked_processes_could_not_use(server):
    pytest.importorskip("obstore")
    put(server, 2)
    done = subprocess.run([sys.executable, "-c", LISTING, server.url], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[] False"  # obstore's prefixes are folders
    assert listed(location_of("s3://bucket/photos"), {"anon": True, "endpoint_url": server.url}) == [
        "photos/000.bin",
        "photos/001.bin",
    ]
