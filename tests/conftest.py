"""What every test gets: its own environment, and a check that it leaves no process and no thread behind."""

import contextlib
import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import psutil
import pytest

from tests.examples import FULL, examples

# Before torch is imported: Inductor then compiles in this process instead of starting workers that live to its end.
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
if "PYTEST_XDIST_WORKER" in os.environ:  # where others compute beside it, a parallel region waits for its last thread
    os.environ.setdefault("OMP_NUM_THREADS", "1")

# Time limits on an example measure the machine, not the code.
hypothesis.settings.register_profile("flatout", deadline=None, print_blob=True, max_examples=examples(100))
hypothesis.settings.load_profile("flatout")

REPO = Path(__file__).resolve().parents[1]
GRACE_S = 3.0  # a loader's workers need a moment to see that their iterator is gone
# Started once by the standard library or torch, shared by later users, ended with this process.
KEPT_BY_OTHERS = ("multiprocessing.resource_tracker", "multiprocessing.forkserver", "torch_shm_manager")


def pytest_configure() -> None:
    """Let tests send Ctrl-C, and fork: see below."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # of a run started in the background; children inherit it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    os.register_at_fork(after_in_child=compute_on_one_thread)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what `make test-full` alone runs, unless tests are named or selected by a word."""
    if FULL or config.option.keyword or any("::" in argument for argument in config.args):
        return
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    left_out = [item for same in cases.values() for item in _left_out(same)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        gone = set(left_out)
        items[:] = [item for item in items if item not in gone]


def pytest_collection_finish() -> None:
    """Take what is there before the first test out of the collector's sight.

    Half a million objects of torch's and of pytest's, which every full collection and every look through all objects
    would go through again.
    """
    gc.collect()
    gc.freeze()


def _left_out(cases: list[pytest.Item]) -> list[pytest.Item]:
    """Return those of a test function's cases that its marks `full` and `few` leave to `make test-full`."""
    few = cases[0].get_closest_marker("few")
    kept = range(len(cases))
    if few is not None and few.args[0] < len(cases):
        last = max(few.args[0] - 1, 1)
        kept = [number * (len(cases) - 1) // last for number in range(few.args[0])]
    return [item for at, item in enumerate(cases) if at not in kept or item.get_closest_marker("full")]


def compute_on_one_thread() -> None:
    """Compute in a forked child as a DataLoader's worker does.

    GNU OpenMP's threads stay in the parent: the child waits for them for ever in its first parallel region, once
    any test before it has made this process start them.
    """
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


@pytest.fixture
def in_sight() -> Iterator[None]:
    """Let the collector see what was there before the first test, as it sees what a script has set up."""
    gc.unfreeze()
    yield
    gc.freeze()


@pytest.fixture(scope="session")
def repo() -> Path:
    """The root of the checkout."""
    return REPO


@pytest.fixture(autouse=True)
def own_state(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Flatout's own state lies in a folder of the test session, and not in the home of who runs it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.getbasetemp() / "state"))


@pytest.fixture
def workdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that is the current one while the test runs."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(autouse=True)
def own_environment() -> Iterator[None]:
    """Start without flatout's own variables and put every variable back afterwards."""
    before = dict(os.environ)
    for name in [name for name in before if name.startswith("FLATOUT_")]:
        del os.environ[name]
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(autouse=True)
def nothing_left_behind(own_environment: None) -> Iterator[None]:
    """Fail a test that leaves child processes or non-daemon threads; end the processes, so that only it fails."""
    before = _alive()
    yield
    until = time.monotonic() + GRACE_S
    while (left := _alive() - before) and time.monotonic() < until:
        time.sleep(0.02)
    killed = [one for one in left if isinstance(one, psutil.Process)]
    for one in killed:
        one.kill()
    with contextlib.suppress(
        RuntimeError
    ):  # torch's own handler says that a worker was killed: here, not in the next test
        psutil.wait_procs(killed, timeout=GRACE_S)
    if left:
        pytest.fail(f"left behind after {GRACE_S:.0f} s: {', '.join(map(repr, left))}", pytrace=False)


@pytest.fixture(autouse=True)
def nothing_kept_by_others() -> None:
    """Let no test find what loaders of another have kept, nor what became of its data sets."""
    compiled = sys.modules.get("flatout.pipeline.serve.compiled_loader")
    if compiled is not None:
        compiled._common.clear()


def _alive() -> set[psutil.Process | threading.Thread]:
    """Return the children of this process, theirs included, and its threads that would keep it from ending."""
    alive: set[psutil.Process | threading.Thread] = {one for one in threading.enumerate() if not one.daemon}
    if _has_children():
        alive |= {child for child in psutil.Process().children(recursive=True) if _is_ours(child)}
    return alive


def _has_children() -> bool:
    """Ask the kernel for this process's children, where it tells: looking through all processes takes 5 ms a test."""
    try:
        told = [path.read_bytes() for path in Path("/proc/self/task").glob("*/children")]
    except OSError:  # a thread that ended meanwhile
        return True
    return any(told) or not told


def _is_ours(process: psutil.Process) -> bool:
    """Say whether a child is a test's own: not a zombie waiting to be reaped, not a service that others keep."""
    try:
        line = " ".join(process.cmdline())
        return process.status() != psutil.STATUS_ZOMBIE and not any(kept in line for kept in KEPT_BY_OTHERS)
    except psutil.Error:
        return False
