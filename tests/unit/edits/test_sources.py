"""Sources as people have them: encodings, line ends, classes, several files; and what is none."""

import ast

import pytest
from tests.unit.edits.scripts import SCRIPT, one, written

from flatout.edits.reading.project import read_project
from flatout.errors import UsageError

THREADS = {
    "cpu-threads": {"threads": 2},
    "loader-workers": {"workers": 2},
    "fused-optimizer": {"implementation": "fused"},
}


def lines_kept(before: bytes, after: bytes) -> bool:
    """Return whether every line of `before` that no argument was added to is a line of `after`."""
    return {*before.split(b"\n")} - {*after.split(b"\n")} <= {line for line in before.split(b"\n") if b"(" in line}


FORMS = {
    "windows": SCRIPT.replace("\n", "\r\n").encode(),
    "tabs": SCRIPT.replace("    ", "\t").encode(),
    "no-final-newline": SCRIPT.rstrip("\n").encode(),
    "byte-order-mark": b"\xef\xbb\xbf" + SCRIPT.encode(),
    "latin-1": b"# -*- coding: latin-1 -*-\nname = '\xe9\xe8'  # \xfc\n" + SCRIPT.encode("latin-1"),
    "shebang": b"#!/usr/bin/env python\n# licence\n\n" + SCRIPT.encode(),
    "docstring-and-future": b'"""Trains."""\nfrom __future__ import annotations\n\n' + SCRIPT.encode(),
    "wide-characters": b"a = '\xf0\x9f\x90\x8d'; " + SCRIPT.encode(),
    "form-feed": SCRIPT.encode() + b"\x0c\n# end\n",
}


@pytest.mark.parametrize("code", FORMS.values(), ids=FORMS)
def test_what_is_not_edited_stays_byte_for_byte(tmp_path, code):
    files, outcomes = written(tmp_path, THREADS, train=code)
    after = files["train"]
    ast.parse(after)
    assert [each.changed for each in outcomes] == [1, 1, 1]
    assert lines_kept(code, after)
    assert after.count(b"\r") == (after.count(b"\n") if b"\r" in code else 0)
    assert after.endswith(b"\n") == code.endswith(b"\n")
    again, outcomes = written(tmp_path, THREADS, train=after)
    assert again["train"] == after
    assert [each.changed for each in outcomes] == [0, 0, 0]


def test_the_first_statement_stays_behind_docstring_and_future_imports(tmp_path):
    text, _ = one(tmp_path, "allocator", FORMS["docstring-and-future"])
    assert text.startswith('"""Trains."""\nfrom __future__ import annotations\n\nimport os\n\nos.environ.setdefault')


TRAINER = """
import torch.optim as optim
import torch.utils.data as tud
from torch import nn


class Net(nn.Module):
    def forward(self, x):
        return x


class Trainer:
    def __init__(self, data):
        self.net = Net()
        self.optimizer = optim.AdamW(self.net.parameters(), 1e-3)
        self.loader, self.valid = tud.DataLoader(data, 4), tud.DataLoader(data, 8)

    def fit(self):
        for number, (x, y) in enumerate(self.loader):
            self.step(x, y)

    def step(self, x, y):
        loss = self.net(x).sum()
        loss.backward()
        self.optimizer.step()

    def validate(self):
        for x, y in self.valid:
            self.net(x)
"""


def test_a_trainer_of_ones_own_is_followed_through_its_attributes(tmp_path):
    fixes = {"loader-workers": {"workers": 2}, "channels-last": {}, "fused-optimizer": {"implementation": "foreach"}}
    files, outcomes = written(tmp_path, fixes, train=TRAINER)
    assert b"tud.DataLoader(data, 4, num_workers=2), tud.DataLoader(data, 8)\n" in files["train"]
    assert b"optim.AdamW(self.net.parameters(), 1e-3, foreach=True)\n" in files["train"]
    assert b"import torch\nimport torch.optim as optim" in files["train"]
    assert b"        self.net = Net()\n        self.net.to(memory_format=torch.channels_last)\n" in files["train"]
    assert [each.changed for each in outcomes] == [1, 1, 1]


FITTED = """
from torch.utils.data import DataLoader

def fit(model, loader, test):
    for x in loader:
        model(x).backward()
    for x in test:
        model(x)

fit(model, DataLoader(a), test=DataLoader(b))
"""


def test_a_loader_is_followed_into_the_function_that_walks_it(tmp_path):
    text, outcome = one(tmp_path, "loader-workers", FITTED, workers=2)
    assert "fit(model, DataLoader(a, num_workers=2), test=DataLoader(b))" in text
    assert outcome.left == ()


SEVERAL = {
    "train": "import data\nfrom engine import train\n\ntrain(data.make(1))\n",
    "data": "from torch.utils.data import DataLoader as DL\n\ndef make(size):\n    return DL([], batch_size=size)\n",
    "engine": "import elsewhere\n\ndef train(loader):\n    for batch in loader:\n        batch.backward()\n",
    "unused": "from torch.utils.data import DataLoader\n\nloader = DataLoader([])\n",
}


def test_a_loader_is_found_in_the_module_that_makes_it(tmp_path):
    files, (outcome,) = written(tmp_path, {"loader-workers": {"workers": 2}}, **SEVERAL)
    assert b"return DL([], batch_size=size, num_workers=2)" in files["data"]
    assert outcome.left == ()
    assert "unused" not in files


@pytest.mark.parametrize("text", ["import torch; model = torch.nn.Linear(1, 1)", "pass", "", "# nothing\n"])
def test_a_script_without_a_training_is_left_as_it_is(tmp_path, text):
    fixes = {**THREADS, "channels-last": {}, "compiled-input": {}, "pinned-copy": {}, "bf16-autocast": {}}
    del fixes["cpu-threads"]
    files, outcomes = written(tmp_path, fixes, train=text)
    assert files["train"].decode() == text
    assert all(each.left and not each.changed for each in outcomes)


def test_a_script_that_is_no_python_is_refused(tmp_path):
    (tmp_path / "train.py").write_text("def broken(:\n")
    with pytest.raises(UsageError, match=r"train\.py cannot be edited"):
        read_project(tmp_path / "train.py", tmp_path, tmp_path)


def test_a_module_that_is_no_python_is_passed_over_and_named(tmp_path):
    (tmp_path / "train.py").write_text("import broken\n")
    (tmp_path / "broken.py").write_text("def broken(:\n")
    project = read_project(tmp_path / "train.py", tmp_path, tmp_path)
    assert [source.shown for source in project.sources] == ["train.py"]
    assert "broken.py is skipped" in project.notes[0]


def test_installed_packages_and_links_out_of_the_folder_are_none_of_ours(tmp_path):
    home = tmp_path / "home"
    (home / "venv" / "lib").mkdir(parents=True)
    (home / "venv" / "pyvenv.cfg").write_text("")
    (home / "venv" / "lib" / "inner.py").write_text("")
    (tmp_path / "outside.py").write_text("")
    (home / "linked.py").symlink_to(tmp_path / "outside.py")
    (home / "train.py").write_text("import linked\nimport venv.lib.inner\n")
    project = read_project(home / "train.py", home, home)
    assert [source.shown for source in project.sources] == ["train.py"]
