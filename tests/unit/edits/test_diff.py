"""The diff, applied by the tools that people have, is the edited file."""

import shutil
import subprocess

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.unit.edits.scripts import SCRIPT, written

from flatout.edits.diff import unified_diff
from flatout.edits.reading.project import read_project
from flatout.edits.written_files import write_project
from flatout.errors import UsageError

LINES = st.lists(st.sampled_from([b"a", b"b", b"", b"\xe9", b"c\r", b"x = 1"]), max_size=12)


def applied(folder, before, diff, command):
    (folder / "train.py").write_bytes(before)
    done = subprocess.run(command, input=diff, cwd=folder, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    return (folder / "train.py").read_bytes()


COMMANDS = [["git", "apply", "--whitespace=nowarn"], ["patch", "-p1", "--binary", "--quiet"]]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
@settings(max_examples=examples(25), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(before=LINES, after=LINES, ends=st.tuples(st.booleans(), st.booleans()))
def test_applying_the_diff_gives_the_other_file(tmp_path, command, before, after, ends):
    if shutil.which(command[0]) is None:
        pytest.skip(f"no {command[0]}")
    old, new = (b"\n".join(lines) + b"\n" * end for lines, end in zip((before, after), ends, strict=True))
    diff = unified_diff(old, new, "train.py")
    assert bool(diff) == (old != new)
    if diff and old and new:  # an empty side makes or removes a file
        assert applied(tmp_path, old, diff, command) == new


PARTS = {
    "head": ["", "#!/usr/bin/env python\n", '"""Trains."""\n', "from __future__ import annotations\n\n", "# said\n\n"],
    "torch": ["import torch\n", "import os\n\nimport torch\n", "import torch  # the one\n", "import sys, torch\n"],
    "data": [
        "from torch.utils.data import DataLoader as Loader\n",
        "from torch.utils.data import (\n    DataLoader as Loader,\n)\n",
    ],
    "loader": [
        "loader = Loader(data)\n",
        "loader = Loader(data, num_workers=0, shuffle=True)\n",
        "loader = Loader(data, **more)\n",
        "loader = Loader(\n    data,\n    # so many\n    batch_size=4,\n)\n",
        "loader = (Loader(data, 4))\n",
        "loader = Loader( data , pin_memory = False )\n",
        "loader = Loader(data, num_workers=N)\n",
    ],
    "model": [
        "model = torch.nn.Linear(1, 1)\n",
        "model = (torch.nn\n    .Linear(1, 1).to(device))\n",
        "if 1: model = make()\n",
    ],
    "optimizer": [
        "optimizer = torch.optim.Adam(model.parameters())\n",
        "optimizer = torch.optim.SGD(model.parameters(), lr=1,)\n",
        "optimizer = torch.optim.Adam(model.parameters(), foreach=True)\n",
        "optimizer = torch.optim.Adam(groups)\n",
    ],
    "loop": [
        "for x in loader:\n    out = model(x.to(device))\n    out.sum().backward()\n",
        "for x in loader:\n\tx = x.cuda()\n\tmodel(x).sum().backward()  # go\n",
        "for i, x in enumerate(loader):\n    loss = torch.nn.functional.mse_loss(model(x), x)\n    loss.backward()",
    ],
}
FIXES = {
    "loader-workers": {"workers": 2},
    "worker-threads": {},
    "compiled-input": {},
    "pinned-copy": {},
    "cpu-threads": {"threads": 1},
    "tf32": {},
    "allocator": {},
    "anomaly-off": {},
    "channels-last": {},
    "compiled-module": {},
    "bf16-autocast": {},
    "fused-optimizer": {"implementation": "foreach"},
}


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    script=st.tuples(*(st.sampled_from(choices) for choices in PARTS.values())).map("".join),
    names=st.sets(st.sampled_from(sorted(FIXES)), min_size=1),
    windows=st.booleans(),
)
@pytest.mark.slow
def test_a_script_that_is_patched_already_is_not_changed_again(tmp_path, script, names, windows):
    fixes = {name: FIXES[name] for name in sorted(names)}
    code = (script.replace("\n", "\r\n") if windows else script).encode()
    files, first = written(tmp_path, fixes, train=code)
    again, second = written(tmp_path, fixes, train=files["train"])
    assert again["train"] == files["train"]
    assert not any(each.changed for each in second)
    assert (files["train"] != code) == any(each.changed for each in first)


# -- files on disk --------------------------------------------------------------------------------------------------


def test_a_file_is_replaced_beside_a_copy_of_what_it_was(tmp_path):
    (tmp_path / "train.py").write_text("old\n")
    (tmp_path / "train.py.orig").write_text("another's\n")
    (tmp_path / "train.py").chmod(0o751)
    project = read_project(tmp_path / "train.py", tmp_path, tmp_path)
    ((name, backup),) = write_project(project, project.with_code(project.script.path, b"new\n"))
    assert (name, backup.name) == ("train.py", "train.py.orig.2")
    assert (tmp_path / "train.py").read_text() == "new\n"
    assert backup.read_text() == "old\n"
    assert (tmp_path / "train.py.orig").read_text() == "another's\n"
    assert (tmp_path / "train.py").stat().st_mode & 0o777 == 0o751
    assert sorted(each.name for each in tmp_path.iterdir()) == ["train.py", "train.py.orig", "train.py.orig.2"]


def test_a_file_that_changed_meanwhile_is_not_overwritten(tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    project = read_project(tmp_path / "train.py", tmp_path, tmp_path)
    (tmp_path / "train.py").write_text("edited\n")
    with pytest.raises(UsageError, match="changed while"):
        write_project(project, project.with_code(project.script.path, b"new\n"))
    assert (tmp_path / "train.py").read_text() == "edited\n"


ODD_NAMES = ("tr\x1b[31main.py", 'a"b\\c.py', "two\nlines.py", "caf\u00e9.py", "right\u202eleft.py", "\udcff.py")


@pytest.mark.parametrize("name", ODD_NAMES)
def test_a_name_in_a_header_is_quoted_as_git_does_and_git_finds_it_again(tmp_path, name):
    (tmp_path / name).write_bytes(b"a = 1\n")
    diff = unified_diff(b"a = 1\n", b"a = 2\n", name)
    head = diff.split(b"@@")[0].decode("utf-8", "surrogateescape")
    assert head.replace("\n", "").isprintable() and len(head.splitlines()) == 2
    done = subprocess.run(["git", "apply", "-"], cwd=tmp_path, input=diff, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / name).read_bytes() == b"a = 2\n"
