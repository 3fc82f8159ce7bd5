"""A folder with a script, the command line on it, the check that no process outlives it; and a browser."""

import contextlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.e2e.support import Flatout, why_no_private_world

INSTALL_S = 200  # it takes 20 s here


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


@pytest.fixture(params=["private", "guarded"])
def world(request, flatout):
    """With a private copy of the file system, and without one, as where the kernel refuses it."""
    if request.param == "guarded":
        flatout.environment["FLATOUT_WORLD"] = "off"
    elif why_no_private_world():
        pytest.skip(why_no_private_world())
    return request.param


def _installed() -> str | None:
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture(scope="session")
def chromium():
    """Return chromium's program, installed by Debian's package manager where that is possible."""
    if _installed() is None and shutil.which("apt-get") and os.geteuid() == 0:
        install = "apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium"
        with contextlib.suppress(subprocess.TimeoutExpired):  # one of the workers installs, the others wait for it
            lock = Path(tempfile.gettempdir()) / "flatout-chromium.lock"
            subprocess.run(["flock", str(lock), "sh", "-c", f"which chromium || ({install})"],
                           capture_output=True, timeout=INSTALL_S)  # fmt: skip
    return _installed() or pytest.skip("chromium is not installed, and Debian's package manager could not install it")
