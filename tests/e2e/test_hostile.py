"""Folders that a stranger has prepared: nothing outside them changes, nothing in them runs, one clear line is said.

A case is a line of a table: what lies there, the command, its exit code and a piece of what it says. `place` has the
project (`top`), something of the user's beside it (`outside`), and a recording in `kept`.
"""

import json
import os
import socket
from dataclasses import dataclass
from pathlib import Path

import pytest

from flatout.engine.trial.journal import STATE_FILE, TRIALS_FILE
from flatout.report.json import REPORT_FILE
from flatout.rules.core.example import example
from flatout.schema.codec import RUN_FILE, write_run
from tests.e2e.support import Flatout, picture

pytestmark = pytest.mark.slow

PATIENCE_S = 60
SHOW = ("report", "kept")
TRAIN = ("run", "train.py")


@dataclass
class Place:
    """A project and what lies beside it."""

    top: Path
    outside: Path

    @property
    def kept(self):
        return self.top / "kept"

    @property
    def recording(self):
        return self.kept / RUN_FILE

    def append(self, *records):
        with self.recording.open("a") as file:
            file.writelines(f"{each}\n" for each in records)

    def replace(self, name, make):
        (self.kept / name).unlink(missing_ok=True)
        make(self.kept / name)

    def change(self, kind, old, new):
        lines = self.recording.read_text().splitlines()
        lines = [line.replace(old, new, 1) if f'"kind":"{kind}"' in line else line for line in lines]
        self.recording.write_text("\n".join(lines) + "\n")

    def recipe(self, fix="loader-workers", settings="workers = 2", proven="", head="schema = 1"):
        (self.top / "flatout.toml").write_text(
            f'{head}\nscript = "train.py"\n'
            f'[[fix]]\nname = "{fix}"\nequivalence = "BITWISE"\n[fix.settings]\n{settings}\n'
            '[proven]\ndate = ""\nflatout = "1"\npython = ""\ntorch = ""\ndevice = ""\n' + proven
        )

    def parts(self):
        """Leave the recording in parts, as a killed diagnosis does."""
        (self.kept / "parts").mkdir()
        self.recording.rename(self.kept / "parts" / "timed-rank0-1.jsonl")
        (self.kept / "order-timed.json").write_text("{}")

    def state(self, folder):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / STATE_FILE).write_text("{}")


def fifo(path):
    os.mkfifo(path)


def a_socket(path):
    here = os.getcwd()
    os.chdir(path.parent)  # the name of a socket is short
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(path.name)
    os.chdir(here)


def link(to):
    return lambda path: path.symlink_to(to)


def large(path):
    with path.open("wb") as file:
        file.truncate(3 * 10**9)


RECORDINGS = {
    "a fifo as recording": (lambda p: p.replace(RUN_FILE, fifo), SHOW, 2, "it is a fifo"),
    "a fifo that is named": (lambda p: fifo(p.top / "pipe"), ("report", "pipe"), 2, "it is a fifo"),
    "a socket as recording": (lambda p: p.replace(RUN_FILE, a_socket), SHOW, 2, "it is a socket"),
    "a device as recording": (lambda p: p.replace(RUN_FILE, link("/dev/zero")), SHOW, 2, "it is a device"),
    "a device that is named": (lambda p: None, ("report", "/dev/zero"), 2, "it is a device"),
    "a folder as recording": (lambda p: p.replace(RUN_FILE, Path.mkdir), SHOW, 2, "holds no recording"),
    "a link to itself": (lambda p: p.replace(RUN_FILE, link(RUN_FILE)), SHOW, 2, ""),
    "a link to a secret": (lambda p: p.replace(RUN_FILE, link(p.outside / "secret")), SHOW, 2, "damaged"),
    "folders in a circle": (lambda p: (p.top / "a").mkdir() or link("..")(p.top / "a" / "b"), ("report", "a"), 0, ""),
    "3 GB": (lambda p: p.replace(RUN_FILE, large), SHOW, 2, "3000 MB; the limit is 128 MB"),
    "notes without end": (
        lambda p: p.append(json.dumps({"kind": "notes", "values": ["x" * 10_000] * 2_000})),
        SHOW,
        0,
        "further notes are left out",
    ),
    "10**400": (lambda p: p.append('{"kind":"facts","probe_us":1' + "0" * 400 + "}"), SHOW, 2, "401 digits"),
    "a number of 5,000 digits": (
        lambda p: p.append('{"kind":"facts","probe_us":1' + "0" * 5000 + "}", "{}"),
        SHOW,
        2,
        "",
    ),
    "Infinity": (lambda p: p.append('{"kind":"facts","probe_us":Infinity}'), SHOW, 2, "probe_us is inf"),
    "1e999": (lambda p: p.append('{"kind":"facts","samples_per_step":1e999}'), SHOW, 2, "samples_per_step is inf"),
    "NaN": (lambda p: p.append('{"kind":"facts","probe_us":NaN}'), SHOW, 2, "probe_us is nan"),
    "a step of 10**30 ns": (lambda p: p.change("steps", "100000000", "1" + "0" * 30), SHOW, 2, "form of a step"),
    "a time before time": (
        lambda p: p.change("header", '"started_unix_s":0.0', '"started_unix_s":-1e300'),
        SHOW,
        2,
        "started_unix_s",
    ),
    "brackets in brackets": (lambda p: p.append("[" * 100_000, "{}"), SHOW, 2, "damaged"),
    "escapes in the script's name": (lambda p: p.change("header", "train.py", "\\u001b[31mred\\n"), SHOW, 0, "\\x1b"),
    "escapes in a note": (lambda p: p.append('{"kind":"notes","values":["\\u001b]0;x\\u0007"]}'), SHOW, 0, "\\x1b"),
    "a fifo as report": (lambda p: p.replace(REPORT_FILE, fifo), SHOW, 0, ""),
    "a device as report": (lambda p: p.replace(REPORT_FILE, link("/dev/zero")), SHOW, 0, ""),
    "a fifo as trials": (lambda p: p.replace(TRIALS_FILE, fifo), SHOW, 0, "trials.jsonl"),
    "a link as trials": (lambda p: p.replace(TRIALS_FILE, link(p.outside / "secret")), SHOW, 0, "trials.jsonl"),
    "a fifo as state": (lambda p: p.replace(STATE_FILE, fifo), SHOW, 0, "tune.json"),
    "an order to a link": (lambda p: p.parts() or p.replace(RUN_FILE, link(p.outside / "mine")), SHOW, 2, ""),
    "a half file to a link": (
        lambda p: (
            p.parts() or [p.replace(name, link(p.outside / "mine")) for name in ("run.partial", "run.jsonl.partial")]
        ),
        SHOW,
        0,
        "",
    ),
    "parts elsewhere": (
        lambda p: (
            p.parts() or (p.kept / "parts").rename(p.outside / "parts") or link(p.outside / "parts")(p.kept / "parts")
        ),
        SHOW,
        2,
        "holds no recording",
    ),
    "a fifo as part": (lambda p: p.parts() or fifo(p.kept / "parts" / "timed-rank0-0.jsonl"), SHOW, 0, ""),
    "a fifo as a worker's part": (
        lambda p: p.parts() or fifo(p.kept / "parts" / "deep-worker-1.json"),
        SHOW,
        0,
        "",
    ),
    "an export to a full disk": (
        lambda p: link("/dev/full")(p.top / "page.html"),
        (*SHOW, "--export", "page.html"),
        2,
        "page.html could not be written",
    ),
    "JSON to a full disk": (lambda p: None, (*SHOW, "--json", "/dev/full"), 2, "could not be written"),
    "out to a device": (lambda p: None, ("diagnose", "--out", "/dev/full", "train.py"), 2, "cannot be written"),
    "one of two is a fifo": (lambda p: fifo(p.top / "pipe"), ("compare", "kept", "pipe"), 2, "it is a fifo"),
}

RECIPES = {
    "a fifo as recipe": (lambda p: fifo(p.top / "flatout.toml"), TRAIN, 2, "no recipe"),
    "a device as recipe": (lambda p: link("/dev/zero")(p.top / "flatout.toml"), TRAIN, 2, "no recipe"),
    "a fifo in the recipe's place": (
        lambda p: fifo(p.top / "flatout.toml"),
        ("tune", "train.py"),
        2,
        "not written by flatout",
    ),
    "100,000 workers": (
        lambda p: p.recipe(settings="workers = 100000"),
        TRAIN,
        2,
        "workers = 100000, not a number from 0",
    ),
    "-5 workers": (lambda p: p.recipe(settings="workers = -5"), TRAIN, 2, "workers = -5, not a number from 0 to 512"),
    "two words of workers": (lambda p: p.recipe(settings='workers = "2 3"'), TRAIN, 2, "workers = '2 3' as int"),
    "10**400 workers": (lambda p: p.recipe(settings="workers = 1" + "0" * 400), TRAIN, 2, "digits"),
    "a number of 5,000 digits": (lambda p: p.recipe(settings="workers = 1" + "0" * 5000), TRAIN, 2, "not a TOML file"),
    "a table of workers": (lambda p: p.recipe(settings="workers = {a = {b = 1}}"), TRAIN, 2, "as int only"),
    "1e999 of learning": (
        lambda p: p.recipe("larger-batch", 'factor = 2\nlr_factor = inf\nloader = "train.py:3"'),
        TRAIN,
        2,
        "lr_factor = inf, not a number from 0 to 1024",
    ),
    "NaN of learning": (
        lambda p: p.recipe("larger-batch", 'factor = 2\nlr_factor = nan\nloader = "train.py:3"'),
        TRAIN,
        2,
        "lr_factor = nan",
    ),
    "a mode without end": (
        lambda p: p.recipe("compiled-module", f'mode = "{"x" * 100_000}"'),
        TRAIN,
        2,
        "not one of default, reduce-overhead",
    ),
    "code in a folder": (
        lambda p: p.recipe("cached-input", 'folder = \'"); open("ran", "w"); ("\''),
        TRAIN,
        2,
        "a folder below the working folder",
    ),
    "code for a patch": (
        lambda p: p.recipe("cached-input", 'folder = \'"); open("ran", "w"); ("\''),
        ("patch", "--write", "train.py"),
        2,
        "a folder below the working folder",
    ),
    "a folder of the user's": (lambda p: p.recipe("cached-input", f'folder = "{p.outside}"'), TRAIN, 2, "folder = '/"),
    "a folder above": (lambda p: p.recipe("cached-input", 'folder = "x/../../outside"'), TRAIN, 2, "without '..'"),
    "a module as fix": (lambda p: p.recipe("os.system", 'command = "touch ran"'), TRAIN, 2, "does not exist"),
    "a setting that is none": (lambda p: p.recipe(settings="call = 1"), TRAIN, 2, "has no setting 'call'"),
    "brackets in brackets": (lambda p: p.recipe(settings="workers = " + "[" * 50_000), TRAIN, 2, "not a TOML file"),
    "two megabytes": (lambda p: p.recipe(settings="#" * 2_000_000), TRAIN, 2, "the limit is 1 MB"),
    "no text": (lambda p: (p.top / "flatout.toml").write_bytes(bytes(range(256))), TRAIN, 2, "not a TOML file"),
    "a schema without end": (lambda p: p.recipe(head=f'schema = "{"9" * 5000}"'), TRAIN, 2, "has schema"),
    "escapes in a name": (lambda p: p.recipe("\\u001b[31m"), TRAIN, 2, "does not exist"),
    "a link to a secret": (lambda p: link(p.outside / "secret")(p.top / "flatout.toml"), TRAIN, 2, "not a TOML file"),
}

FOLDERS = {
    "a link as our folder": (
        lambda p: link(p.outside)(p.top / ".flatout"),
        ("diagnose", "train.py"),
        2,
        "is a link to",
    ),
    "a link as the script's": (
        lambda p: (p.top / ".flatout").mkdir() or link(p.outside)(p.top / ".flatout" / "train.py"),
        ("diagnose", "train.py"),
        2,
        "is a link to",
    ),
    "a link as the script's, for a tune": (
        lambda p: (p.top / ".flatout").mkdir() or link(p.outside)(p.top / ".flatout" / "train.py"),
        ("tune", "train.py"),
        2,
        "is a link to",
    ),
    "a link as the script's, named": (
        lambda p: (p.top / "out").mkdir() or link(p.outside)(p.top / "out" / "train.py"),
        ("diagnose", "--out", "out", "train.py"),
        2,
        "is a link to",
    ),
}

CASES = {**RECORDINGS, **{f"recipe: {name}": case for name, case in RECIPES.items()}, **FOLDERS}


@pytest.fixture
def place(tmp_path):
    found = Place(tmp_path / "project", tmp_path / "outside")
    found.top.mkdir()
    found.outside.mkdir()
    found.kept.mkdir()
    (found.outside / "secret").write_text("the user's own words\n")
    (found.outside / "mine").write_text("the user's own file\n")
    (found.top / "train.py").write_text("open('ran', 'w').close()\n")
    write_run(example(step_ms=100, input=60).run, found.recording)
    return found


@pytest.mark.parametrize("name", CASES)
@pytest.mark.few(5)
def test_a_prepared_folder_changes_nothing_runs_nothing_and_is_told_in_one_line(name, place):
    prepare, words, code, told = CASES[name]
    prepare(place)
    before = picture(place.outside)
    flatout = Flatout(place.top)
    ended = flatout.wait(flatout.start(*words), timeout=PATIENCE_S)
    said = " ".join((ended.out + ended.err).split())
    assert ended.code == code, said
    assert told in said
    assert "the user's own" not in said
    assert "flatout itself failed" not in said and "Traceback" not in said
    assert "\x1b" not in said
    assert picture(place.outside) == before
    assert not (place.top / "ran").exists()


def test_an_unfinished_tune_that_came_with_a_project_is_left_alone_with_the_reason(place):
    """A tune is gone on with only in a folder that is this user's, whose trials keep within the bounds of fixes."""
    from flatout.engine.trial.interrupted_tune import taken_up
    from flatout.engine.trial.journal import TrialJournal
    from flatout.schema.trial import Candidate, Equivalence, Selection, Trial, Verdict

    assert taken_up(place.kept)[0] is not None
    link(place.outside / "mine")(place.kept / "report.html")
    assert "report.html is a link" in taken_up(place.kept)[1]
    (place.kept / "report.html").unlink()
    link(place.kept)(place.top / "there")
    assert "through a link" in taken_up(place.top / "there")[1]
    selection = Selection("loader-workers", {"workers": 100_000})
    candidate = Candidate(selection=selection, equivalence=Equivalence.BITWISE)
    TrialJournal(place.kept).append(Trial(number=1, candidate=candidate, verdict=Verdict.KEPT))
    run, reason = taken_up(place.kept)
    assert run is None
    assert "workers = 100000, not a number from 0 to 512" in reason
