"""What tests of objects get besides: a server, a folder for what is kept where nobody names one, no credentials."""

import os

import pytest
from benchmarks.object_server import ObjectServer
from tests.unit.pipeline.read.objects.served import options_of


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in [name for name in os.environ if name.startswith(("AWS_", "GOOGLE_"))]:
        monkeypatch.delenv(name)
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1")


@pytest.fixture
def server():
    with ObjectServer() as made:
        yield made


@pytest.fixture
def options(server):
    return options_of(server)
