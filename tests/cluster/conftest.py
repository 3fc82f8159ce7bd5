"""Machines for the tests of this folder: two hosts in this one, and a SLURM of two nodes."""

import tempfile
from pathlib import Path

import pytest

from tests.cluster.hosts import two_hosts, why_no_hosts
from tests.cluster.slurm import slurm_of, why_no_slurm


def pytest_collection_modifyitems(items):
    for item in items:
        if "tests/cluster" in str(item.path):
            item.add_marker(pytest.mark.slow)


@pytest.fixture
def hosts(tmp_path):
    """Two hosts; what runs on them ends with the test."""
    if why_no_hosts():
        pytest.skip(why_no_hosts())
    with two_hosts(tmp_path / "hosts") as found:
        yield found


@pytest.fixture
def slurm(hosts):
    """SLURM on the two hosts, in a folder of a short name: a socket's path has 108 characters at most."""
    if why_no_slurm():
        pytest.skip(why_no_slurm())
    with (
        tempfile.TemporaryDirectory(prefix="slurm-", ignore_cleanup_errors=True) as folder,
        slurm_of(hosts, Path(folder, "slurm")) as found,
    ):
        yield found
