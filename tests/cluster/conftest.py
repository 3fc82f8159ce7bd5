"""Machines for the tests of this folder: two hosts in this one, and a SLURM of two nodes."""

import pytest

from tests.cluster.hosts import two_hosts, why_no_hosts


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
