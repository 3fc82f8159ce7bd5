"""Where nothing can be written: one line, the exit code of wrong usage, and never a traceback.

Modules: flatout.__main__.
"""

import subprocess
import sys

import pytest

from flatout.rules.core.example import example
from flatout.schema.codec import RUN_FILE, write_run

pytestmark = pytest.mark.slow

COMMANDS = ("report kept", "report kept --json -", "explain", "--help", "compare kept kept2")


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("kept", "kept2"):
        (tmp_path / name).mkdir()
        write_run(example(step_ms=100, input=60).run, tmp_path / name / RUN_FILE)


def shell(line):
    flatout = f"{sys.executable} -m flatout"
    return subprocess.run(["bash", "-c", line.format(flatout=flatout)], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(("where", "why"), [("> /dev/full", "No space left on device"), (">&-", "Bad file descriptor")])
@pytest.mark.few(4)
def test_a_stdout_that_takes_nothing_is_told_in_one_line(command, where, why, project):
    done = shell(f"{{flatout}} {command} {where}")
    assert done.returncode == 2
    assert f"could not be written to stdout ({why})" in done.stderr
    assert "Traceback" not in done.stderr and "itself failed" not in done.stderr and "Exception" not in done.stderr
    if command == "--help":
        assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("command", COMMANDS)
def test_a_reader_that_has_seen_enough_is_not_told_of_it(command, project):
    done = shell(f"{{flatout}} {command} | true; exit ${{{{PIPESTATUS[0]}}}}")
    assert done.returncode in (0, 1)
    assert "Traceback" not in done.stderr and "itself failed" not in done.stderr and "Exception" not in done.stderr


def test_a_stderr_that_is_closed_costs_what_would_have_stood_there(project):
    done = shell("{flatout} report kept 2>&-")
    assert (done.returncode, done.stderr) == (0, "")
    assert "Each step takes" in done.stdout
    assert shell("{flatout} report nothing 2>&-").returncode == 2
