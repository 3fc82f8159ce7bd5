"""What people see of edited lines: tracebacks, `inspect`, the debugger, warnings, coverage by line."""

import pytest
from tests.unit.fixes.source.serving import Served

pytestmark = pytest.mark.slow

OLD = "x = 1\nraise ValueError('on disk')\n"
FAILS = '''"""Doc."""
import helper


def outer():
    return helper.fails(0)  # an edited line


HOW
'''
HELPER = "# one line more\n\n\ndef fails(x):\n    return 1 / x  # edited, too\n"


@pytest.fixture
def served(tmp_path):
    found = Served(tmp_path)
    found.write("helper.py", "def fails(x):\n    return 0\n", HELPER)
    return found


def both(served, text, *words, **more):
    """Run a script that was edited to `text`, and one that holds it; return the output of both."""
    path = served.write("train.py", OLD, text)
    found = served.run("train.py", *words, **more)
    kept = {one: one.read_bytes() for one in (path, served.folder / "helper.py")}
    path.write_text(text)
    (served.folder / "helper.py").write_text(HELPER)
    plain = served.plain("train.py", *words)
    for one, data in kept.items():
        one.write_bytes(data)
    return found, plain


@pytest.mark.parametrize(
    "how",
    [
        "outer()",
        "import threading\nthread = threading.Thread(target=outer, name='own')\nthread.start()\nthread.join()",
        "import traceback\ntry:\n    outer()\nexcept ZeroDivisionError:\n    traceback.print_exc()",
        "import logging\ntry:\n    outer()\nexcept ZeroDivisionError:\n    logging.exception('told')",
        "import warnings\nwarnings.warn('look here')",
        "try:\n    outer()\nexcept ZeroDivisionError as error:\n    raise KeyError('x') from error",
        "import sys\nsys.excepthook = lambda *error: print(error[0].__name__, file=sys.stderr)\nouter()",
        "raise SystemExit('told')",
        "import sys\nsys.stderr = None\nouter()",
        "raise ExceptionGroup('several', [ValueError('x')])",
    ],
)
def test_errors_are_printed_as_those_of_a_plain_script(served, how):
    found, plain = both(served, FAILS.replace("HOW", how))
    assert found.stderr == plain.stderr
    assert (found.returncode, found.stdout) == (plain.returncode, plain.stdout)


def test_inspect_and_linecache_give_edited_lines_and_are_not_put_off_by_the_file(served):
    text = FAILS.replace("HOW", "import inspect, linecache\nlinecache.checkcache()\n"
                         "print(inspect.getsource(outer), inspect.getsource(helper.fails))\n"
                         "print(inspect.getsourcelines(helper.fails)[1], inspect.getsource(helper))")  # fmt: skip
    found, plain = both(served, text)
    assert found.stdout == plain.stdout
    assert "edited, too" in found.stdout


def test_the_debugger_stops_at_edited_lines_and_shows_them(served):
    text = FAILS.replace("HOW", "import pdb; pdb.set_trace()\nouter()")
    found = served.run(*[served.write("train.py", OLD, text).name], stdin="step\nstep\nstep\nlist\nquit\n")
    assert "edited, too" in found.stdout
    assert "on disk" not in found.stdout


def test_line_events_are_those_of_the_edited_text(served):
    text = FAILS.replace("HOW", "print(sorted(LINES))")
    trace = (
        "import sys\nLINES = set()\ndef trace(frame, event, arg):\n    LINES.add(frame.f_lineno)\n    return trace\n"
    )
    text = text.replace("import helper\n", f"import helper\n{trace}sys.settrace(trace)\n")
    found, plain = both(served, text)
    assert found.stdout == plain.stdout


def test_odd_line_ends_do_not_shift_lines(served):
    text = "x = 'a\x0cb'\n\x0c\nimport inspect\n\ndef f():\n    return 'here'\nprint(inspect.getsource(f))\n"
    found, _ = both(served, text.replace("\n", "\r\n"))
    assert found.stdout.splitlines()[:2] == ["def f():", "    return 'here'"], found.stderr
