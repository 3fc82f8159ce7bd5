"""Forked workers tell for which kinds they have compiled, and the process that forks them compiles for these."""

import os

import pytest
from tests.unit.numeric.served_code import at_once, loaded, states

pytest.importorskip("numba")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="no process is forked here"),
]
TEXT = """
import flatout
@flatout.compiled
def f(k, n):
    t = k[0]
    for i in range(n):
        t += k[i % 2]
    return t
"""


def forked(act):
    """Run `act` in a forked process and return its exit code."""
    pid = os.fork()
    if not pid:
        code = 1
        try:
            code = act()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_what_one_worker_has_compiled_the_next_one_has_from_its_parent(tmp_path, monkeypatch):
    at_once(monkeypatch)
    function = loaded(tmp_path, TEXT).f

    def work():
        for _ in range(6):
            assert function([0.5, 2.0], 4) == 5.5
        return 0 if states() and states()[0].form is not None else 2

    assert forked(work) == 0
    assert states() == []  # this process has heard nothing yet
    assert forked(lambda: 0 if [state.form is not None for state in states()] == [True] else 3) == 0
    assert states()[0].form is not None  # it was compiled here, before the fork
    assert function([0.5, 2.0], 4) == 5.5
    assert states()[0].served == 0  # the first call of each process is compared
    assert [function([0.5, 2.0], 4) for _ in range(3)] == [5.5] * 3
    assert states()[0].served == 3
