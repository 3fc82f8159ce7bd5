"""A folder with a script, the command line on it, and the check that no process outlives it."""

import pytest

from tests.e2e.support import Flatout


def pytest_collection_modifyitems(items):
    for item in items:
        if "tests/e2e" in str(item.path):
            item.add_marker(pytest.mark.slow)


@pytest.fixture
def flatout(tmp_path):
    """The command line in an empty project; whatever it started must be gone in the end."""
    folder = tmp_path / "project"
    folder.mkdir()
    command = Flatout(folder)
    yield command
    for process in command.running:
        if process.poll() is None:
            process.kill()
            process.wait()
    left = command.left_behind()
    assert not left, f"left behind: {left}"
