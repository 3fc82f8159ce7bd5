"""Objects of a server of S3 that others wrote (moto), which checks more than the one of these tests does.

Modules: flatout.pipeline.read.objects.objects.
"""

import socket
import subprocess
import sys
import time
import urllib.request

import pytest

import flatout
from flatout.errors import BadObject

pytest.importorskip("obstore")
pytest.importorskip("moto.server", reason="moto[s3,server] is not installed (pip install -e .[dev-data])")
boto3 = pytest.importorskip("boto3")
pytestmark = pytest.mark.slow


@pytest.fixture
def bucket(monkeypatch):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-p", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    url, until = f"http://127.0.0.1:{port}", time.monotonic() + 60
    while True:
        try:
            urllib.request.urlopen(url, timeout=5).close()
            break
        except OSError:
            assert time.monotonic() < until and started.poll() is None
            time.sleep(0.1)
    session = boto3.session.Session("any", "any", region_name="us-east-1")
    made = session.resource("s3", endpoint_url=url).Bucket("photos")
    made.create()
    yield made
    made.meta.client.close()
    started.terminate()
    started.wait()


def test_objects_of_a_bucket(bucket):
    options = {"key": "any", "secret": "any", "endpoint_url": bucket.meta.client.meta.endpoint_url}
    wanted = {f"train/{at % 3}/ü {at}%20.jpg": bytes([at]) * 1000 for at in range(20)}
    for key, data in wanted.items():
        bucket.put_object(Key=key, Body=data)
    found = flatout.objects("s3://photos/train/", storage_options=options)
    assert [url.removeprefix("s3://photos/") for url in found.urls] == sorted(wanted)
    assert found.__getitems__(range(20)) == [wanted[key] for key in sorted(wanted)]
    again = flatout.objects("s3://photos/train/1/*.jpg", storage_options=options)
    assert list(again) == [wanted[key] for key in sorted(wanted) if "/1/" in key]
    some = flatout.objects(list(found.urls[:2]), ranges=[(5, 9), None], storage_options=options)
    assert list(some) == [wanted[sorted(wanted)[0]][5:9], wanted[sorted(wanted)[1]]]
    bucket.put_object(Key=sorted(wanted)[0], Body=b"another")
    bucket.delete_objects(Delete={"Objects": [{"Key": sorted(wanted)[1]}]})
    assert list(found) == [wanted[key] for key in sorted(wanted)]  # as they were when they were first read
    later = flatout.objects(found.urls, storage_options=options)
    assert later[0] == b"another"
    with pytest.raises(BadObject, match="is missing"):
        later[1]
    with pytest.raises(BadObject, match=r"could not be read|is missing"):
        flatout.objects(["s3://nowhere/a"], storage_options=options)[0]
