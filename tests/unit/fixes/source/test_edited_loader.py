"""Edited text served to every process of a script, by the doors that Python itself has for it."""

import signal
import subprocess
import sys
import time

import pytest
from tests.unit.fixes.source.serving import Served

pytestmark = pytest.mark.slow

MODULE = "def g():\n    return 'old'\n"
EDITED = "# a line more\ndef g():\n    return 'new'\n"
NAMES = ("__name__", "__doc__", "__package__", "__spec__", "__cached__", "__file__", "__annotations__")
SHOW = f"""'''Doc.'''
from __future__ import annotations
import os, sys
x: int = 1
ways = os.environ["PYTHONPATH"].split(":")
first = next(entry for entry in sys.path if entry not in ways)
names = {{name: globals().get(name, "absent") for name in {NAMES}}}
print(names, sys.argv, first, vars(sys.modules["__main__"]) is globals())
print(getattr(__loader__, "name", None))
"""


@pytest.fixture
def served(tmp_path):
    return Served(tmp_path)


def test_a_script_runs_as_edited_and_is_told_the_same_of_itself_as_a_plain_one(served):
    path = served.write("train.py", "print('old')\n", SHOW)
    found = served.run("train.py", "--lr", "1")
    assert (found.returncode, found.stderr) == (0, "")
    assert path.read_text() == "print('old')\n"
    path.write_text(SHOW)
    assert found.stdout == served.plain("train.py", "--lr", "1").stdout


@pytest.mark.parametrize(
    "words", [["sub/train.py"], ["./sub/../sub/train.py"], ["link.py"], ["-P", "sub/train.py"], ["-u", "-B", "link.py"]]
)
def test_it_does_however_the_script_is_named(served, words):
    path = served.write("sub/train.py", "print('old')\n", SHOW)
    (served.folder / "link.py").symlink_to("sub/train.py")
    found = served.run(*words)
    path.write_text(SHOW)
    assert found.stdout == served.plain(*words).stdout != ""


def test_modules_of_packages_with_relative_imports_run_as_edited_under_m(served):
    served.write("package/__init__.py", "VALUE = 1\n", "VALUE = 2\n")
    served.write("package/deep/__init__.py", "")
    served.write("package/deep/module.py", MODULE, EDITED)
    main = "from .. import VALUE\nfrom .module import g\nprint(VALUE, g(), __package__, __spec__.name, 'XXX')\n"
    served.write("package/deep/main.py", main.replace("XXX", "old"), main.replace("XXX", "new"))
    found = served.run("-m", "package.deep.main")
    assert found.stdout == "2 new package.deep package.deep.main new\n", found.stderr


def test_the_main_file_of_a_folder_or_package_runs_as_edited(served):
    served.write("package/__init__.py", "")
    served.write("package/__main__.py", "print('old')\n", "print('new', __spec__.name)\n")
    assert served.run("package").stdout == "new __main__\n"
    assert served.run("-m", "package").stdout == "new package.__main__\n"


def test_no_byte_code_is_read_or_written_for_edited_text(served):
    served.write("helper.py", MODULE, EDITED)
    served.write("other.py", MODULE)
    served.plain("-c", "import helper, other")
    held = {path.name: path.read_bytes() for path in served.folder.glob("__pycache__/*")}
    assert served.run("-c", "import helper, other; print(helper.g(), other.g())").stdout == "new old\n"
    assert {path.name: path.read_bytes() for path in served.folder.glob("__pycache__/*")} == held
    assert served.plain("-c", "import helper; print(helper.g())").stdout == "old\n"


PROCESSES = """
import multiprocessing, sys
from helper import g

def work(queue):
    queue.put((__name__, __package__, __spec__, VALUE, g(), sys.path[0] == FOLDER))

VALUE = 'XXX'
FOLDER = sys.path[0]

if __name__ == "__main__":
    for method in ("spawn", "fork", "forkserver"):
        context = multiprocessing.get_context(method)
        queue = context.Queue()
        process = context.Process(target=work, args=(queue,))
        process.start()
        print(method, *queue.get(timeout=30))
        process.join()
"""


def test_workers_started_by_spawn_fork_and_forkserver_run_as_edited(served):
    served.write("helper.py", MODULE, EDITED)
    path = served.write("sub/train.py", PROCESSES.replace("XXX", "old"), PROCESSES.replace("XXX", "new"))
    served.write("sub/helper.py", MODULE, EDITED)
    found = served.run("sub/train.py")
    assert found.returncode == 0, found.stderr
    path.write_text(path.read_text().replace("old", "new"))
    (path.parent / "helper.py").write_text(EDITED)
    assert found.stdout == served.plain("sub/train.py").stdout
    assert found.stdout.count("new new True") == 3


def test_what_runs_a_script_by_runpy_runs_the_edited_one(served):
    path = served.write("train.py", "print('old')\n", SHOW)
    call = "import pathlib, runpy, sys; runpy.run_path(pathlib.Path('train.py'), run_name='__main__'); print(sys.path)"
    found = [served.run("-c", code) for code in (call, call.replace("pathlib.Path('train.py')", "'train.py'"))]
    path.write_text(SHOW)
    plain = served.plain("-c", call)
    for one in found:
        told = one.stdout.splitlines()
        assert "'__spec__': None" in told[0] and "'__package__': ''" in told[0], one.stderr
        assert told[0].endswith(" True") and told[1] == "None"
        assert "train.py" not in told[2]
    assert "'__spec__': None" in plain.stdout and "'__package__': ''" in plain.stdout


@pytest.mark.parametrize("changed", ["train.py", "helper.py"])
def test_a_file_that_has_changed_since_runs_as_it_is_and_its_edit_is_left_out_whole_with_one_line(served, changed):
    main = "from helper import g\nprint('XXX', g())\n"
    served.write("train.py", main.replace("XXX", "old"), main.replace("XXX", "new"))
    served.write("helper.py", MODULE, EDITED)
    served.write("own.py", "VALUE = 1\n", "VALUE = 2\n", edit="another")
    path = served.folder / changed
    path.write_text(path.read_text() + "import own\nprint(own.VALUE)\n")
    found = served.run("train.py")
    assert found.stdout.split() == (["old", "old", "2"] if changed == "train.py" else ["2", "old", "old"])
    (line,) = found.stderr.splitlines()
    assert line == f"flatout: edit e is left out: {changed} has changed since the edit was made; the file runs as it is"


@pytest.mark.parametrize("broken", ["def g(:\n", "print('\0')\n", "x = " + "(" * 500 + ")" * 500 + "\n"])
def test_text_that_cannot_be_compiled_leaves_the_file_as_it_is(served, broken):
    served.write("train.py", "import helper\nprint(helper.g(), __spec__)\n", broken, edit="main")
    served.write("helper.py", MODULE, broken)
    found = served.run("train.py")
    assert found.stdout == "old None\n"
    assert [line[:29] for line in found.stderr.splitlines()] == [
        "flatout: edit main is left ou", "flatout: edit e is left out: "
    ]  # fmt: skip


def test_an_order_that_cannot_be_read_leaves_everything_as_it_is(served):
    served.write("train.py", "print('old')\n", "print('new')\n")
    served.order.write_text(served.order.read_text().replace('"digest"', '"digits"'))
    found = served.run("train.py")
    assert (found.returncode, found.stdout) == (0, "old\n")
    assert found.stderr.startswith("flatout: edits of the source are left out: ")


def test_a_module_that_another_loader_takes_over_is_left_to_it(served):
    served.write("helper.py", MODULE, EDITED)
    hook = """
import importlib.machinery, sys
class Loader(importlib.machinery.SourceFileLoader): ...
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name != "helper": return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        spec.loader = Loader(name, spec.origin)
        return spec
sys.meta_path.insert(0, Finder())
import helper
print(helper.g())
sys.meta_path.append(sys.meta_path.pop(0))
del sys.modules["helper"]
"""
    found = served.run("-c", hook)
    assert (found.stdout, found.stderr) == ("old\n", "")


def test_exit_codes_and_ctrl_c_are_the_script_s_own(served):
    served.write("code.py", "", "import sys\nsys.exit(7)\n")
    served.write("error.py", "", "raise ValueError('no')\n")
    assert served.run("code.py").returncode == 7
    assert served.run("error.py").returncode == 1
    wait = "import time\nprint('ready', flush=True)\ntime.sleep(30)\n"
    served.write("wait.py", "", wait)
    process = subprocess.Popen(
        [sys.executable, "wait.py"], cwd=served.folder, env=served.environment, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=30)
    assert process.returncode == -signal.SIGINT
    assert error.splitlines()[-1] == "KeyboardInterrupt"


def test_a_process_that_runs_none_of_the_files_is_as_it_was(served):
    served.write("train.py", "", "")
    told = "import sys; print(sorted(name for name in sys.modules if 'flatout' in name and 'fixes' not in name))"
    found = served.run("-c", "import sys; print(sys.excepthook is sys.__excepthook__)")
    assert (found.stdout, found.stderr) == ("True\n", "")
    assert "torch" not in served.run("-c", told).stdout
