"""A process that asks obstore for a forked one."""

import gc
import os
import pickle
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest
from tests.unit.pipeline.read.objects.served import held, put

from flatout.errors import BadObject
from flatout.pipeline.read.objects.object_reads import ObjectRequest
from flatout.pipeline.read.objects.reading_process import ReadingProcess

pytest.importorskip("obstore")
pytestmark = pytest.mark.slow


@pytest.fixture
def process(options):
    made = ReadingProcess(options, 16)
    yield made
    made.close()


def test_many_threads_have_their_own_answers(server, process):
    urls = put(server, 100, 20_000)
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda url: process.read(ObjectRequest(url)), urls))
    assert [answer.data for answer in answers] == [held(server, url) for url in urls]
    assert process.read(ObjectRequest(urls[0], known=answers[0].identity)).data is None
    assert process.names("s3://bucket", "photos/") == [f"photos/{at:03}.bin" for at in range(100)]


def test_an_error_there_is_one_here(server, process):
    with pytest.raises(BadObject, match="s3://bucket/none is missing") as raised:
        process.read(ObjectRequest("s3://bucket/none"))
    assert raised.value.advice
    put(server, 1)
    assert process.read(ObjectRequest("s3://bucket/photos/000.bin")).data  # and it goes on


def test_who_waits_for_a_process_that_is_killed_is_told(server, process):
    [url] = put(server, 1)
    process.read(ObjectRequest(url))
    server.faults["/bucket/photos/000.bin"] = ["hang"]
    [child] = [one for one in psutil.Process().children() if "reading_process" in " ".join(one.cmdline())]
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(process.read, ObjectRequest(url))
        while server.faults["/bucket/photos/000.bin"]:
            time.sleep(0.01)
        os.kill(child.pid, signal.SIGKILL)
        with pytest.raises(BadObject, match="has ended"):
            waiting.result(timeout=20)
    with pytest.raises(BadObject, match="has ended"):
        process.read(ObjectRequest(url))


OWNER = """
import pickle, sys, time
from flatout.pipeline.read.objects.object_reads import ObjectRequest
from flatout.pipeline.read.objects.reading_process import ReadingProcess
options, url = pickle.load(sys.stdin.buffer)
made = ReadingProcess(options, 2)
assert made.read(ObjectRequest(url)).data
print(made._process.pid, flush=True)
time.sleep(60)
"""


def test_it_ends_with_its_owner_however_that_ends(server, options):
    [url] = put(server, 1)
    owner = subprocess.Popen([sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    owner.stdin.write(pickle.dumps((options, url)))
    owner.stdin.close()
    reading = psutil.Process(int(owner.stdout.readline()))
    owner.kill()
    owner.wait()
    owner.stdout.close()
    reading.wait(timeout=20)


def test_what_cannot_be_sent_is_said():
    with pytest.raises(BadObject, match="could not be started"):
        ReadingProcess({"credential_provider": lambda: {}}, 1)


def test_it_ends_where_nobody_refers_to_it_any_more(server, options):
    [url] = put(server, 1)
    made = ReadingProcess(options, 2)
    assert made.read(ObjectRequest(url)).data
    reading = psutil.Process(made._process.pid)
    del made
    gc.collect()
    assert not reading.is_running()
