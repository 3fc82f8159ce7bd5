"""The pages of docs as they are tested: their blocks, what is said of them in comments, and a folder to run them in.

A comment of its own line before a block, or anywhere before it, says how it is tried:

    <!-- test: given train.py -->      put this file of tests/docs/given where the commands run, before the next block
    <!-- test: file train.py -->       write the next block to this file in place of running it
    <!-- test: exit 0 3 -->            the next block ends with one of these exit codes
    <!-- test: cell -->                the next block goes on from the cells before it, as in a notebook
    <!-- test: needs lightning -->     the page is tried where this package is installed
    <!-- test: skip needs SLURM -->    the next block is not run, for this reason; tests/docs counts these
"""

import hashlib
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
DOCS = REPO / "docs"
GIVEN = Path(__file__).with_name("given")
RUN = ("console", "sh", "python")
SHOWN = ("text", "toml", "yaml", "json", "diff", "html", "slurm")
LONGEST_S = 400
LONGEST_TOLD = 3000  # characters of what a command printed, in the message of a test

_NOTE = re.compile(r"<!-- test: (given|file|exit|cell|needs|skip)\s*(.*?) -->")
_MEASURES = re.compile(r"flatout (diagnose|tune|demo|run)|torchrun|python|pytest|torch")


@dataclass(frozen=True)
class Block:
    """One fenced block: where it stands, its language, its text, and what comments before it say."""

    page: str
    line: int
    language: str
    text: str
    notes: tuple[tuple[str, str], ...] = ()

    def note(self, key):
        return next((value for name, value in self.notes if name == key), None)

    @property
    def runs(self):
        """Say whether this block is a command or a program that is tried."""
        return self.language in RUN and self.note("skip") is None and self.note("file") is None

    @property
    def commands(self):
        """The commands of a console block with their output, as (command, output) pairs."""
        found = []
        for line in self.text.splitlines():
            if line.startswith("$ "):
                found.append([line[2:], []])
            elif found and not found[-1][1] and found[-1][0].endswith("\\"):
                found[-1][0] += "\n" + line
            elif found:
                found[-1][1].append(line)
        return [(command, "\n".join(output)) for command, output in found]


def pages():
    """Return the names of all pages of docs, without those that are made of docstrings and run nothing."""
    return sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))


def blocks(page):
    """Return the blocks of a page in order."""
    found, notes, inside, start = [], [], None, 0
    for number, line in enumerate((DOCS / page).read_text(encoding="utf-8").splitlines(), start=1):
        if inside is None and line.startswith("```"):
            inside, start, language = [], number, line[3:].strip()
        elif inside is not None and line.startswith("```"):
            found.append(Block(page, start, language, "\n".join(inside) + "\n", tuple(notes)))
            inside, notes = None, []
        elif inside is not None:
            inside.append(line)
        else:
            notes += _NOTE.findall(line)
    assert inside is None, f"{page}:{start}: the block has no end"
    return found


def measures(page):
    """Say whether trying the page takes seconds: it starts torch, or a training."""
    return any(block.runs and (block.language == "python" or _MEASURES.search(block.text)) for block in blocks(page))


@dataclass
class Session:
    """A folder in which the blocks of one page are run, one after the other."""

    folder: Path
    place: Path = None
    cells: list = field(default_factory=list)

    def __post_init__(self):
        self.place = self.folder / "project"
        self.place.mkdir(parents=True)

    def take(self, block):
        """Run a block, or write it to its file; return what was printed."""
        for key, value in block.notes:
            if key == "given":
                self.give(value)
        if block.note("file"):
            (self.place / block.note("file")).write_text(block.text)
        if not block.runs:
            return ""
        if block.language == "python":
            return self.python(block)
        texts = [command for command, _ in block.commands] if block.language == "console" else [block.text]
        codes = [int(word) for word in (block.note("exit") or "0").split()]
        return "".join(self.shell(text, f"{block.page}:{block.line}", codes) for text in texts)

    def give(self, names):
        """Copy files of tests/docs/given; `flatout.toml=NAME` is made to be of the script NAME."""
        for name, _, script in (word.partition("=") for word in names.split()):
            text = (GIVEN / name).read_text()
            if name == "flatout.toml":
                script = self.place / (script or "train.py")
                digest = hashlib.sha256(script.read_bytes()).hexdigest()[:16]
                text = text.replace("SCRIPT_DIGEST", digest).replace("train.py", script.name)
            (self.place / name).write_text(text)

    def python(self, block):
        if block.note("cell") is not None:
            self.cells.append(block.text)
        text = "".join(self.cells) if block.note("cell") is not None else block.text
        (self.place / "block.py").write_text(text)
        return self.shell("python block.py", f"{block.page}:{block.line}")

    def shell(self, text, where, codes=(0,)):
        """Run a text in bash, in the folder where the last one ended."""
        state = self.folder / "place"
        done = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", f'trap \'pwd > "{state}"\' EXIT\n{text}'],
            cwd=self.place, env=self.environment(), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LONGEST_S,
        )  # fmt: skip
        told = done.stdout.decode("utf-8", "replace")
        wanted = " or ".join(map(str, codes))
        last = told[-LONGEST_TOLD:]
        assert done.returncode in codes, f"docs/{where}: exit code {done.returncode}, not {wanted}\n{text}\n{last}"
        self.place = Path(state.read_text().strip())
        return told

    def environment(self):
        """Return the environment: flatout and torchrun of this interpreter, no network, 80 columns."""
        programs = self.folder / "programs"
        if not programs.exists():
            programs.mkdir()
            for name, module in (("flatout", "flatout"), ("torchrun", "torch.distributed.run"), ("pytest", "pytest")):
                (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" -m {module} "$@"\n')
                (programs / name).chmod(0o755)
            (programs / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
            (programs / "python").chmod(0o755)
        path = os.pathsep.join([str(programs), str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        source = os.pathsep.join([str(REPO / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
        ours = {"PATH": path, "PYTHONPATH": source, "COLUMNS": "80", "HF_HUB_OFFLINE": "1", "HOME": str(self.folder)}
        return {**os.environ, **ours, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
