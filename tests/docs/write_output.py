"""Run a page and write what its console blocks print below their commands, with machine, versions and date.

    PYTHONPATH=src python -m tests.docs.write_output tutorial.md

Only for a machine that does nothing else meanwhile: the figures are shown to everybody.
"""

import datetime
import platform
import re
import sys
import tempfile
from importlib import metadata
from pathlib import Path

from flatout import __version__
from flatout.machine import usable_cores
from tests.docs.pages import DOCS, Session, blocks

PLACE = "<!-- output: where and when -->\n"


def where():
    """Return the sentence on machine, versions and date."""
    cpu = re.search(r"model name\s*:\s*(.*)", Path("/proc/cpuinfo").read_text())[1]
    today = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d")
    return (
        f"The output on this page is of {today}, one run, on {usable_cores()} cores of a shared machine without a GPU\n"
        f"({cpu}): Python {platform.python_version()}, torch {metadata.version('torch')}, flatout {__version__}."
    )


def main(page):
    text = (DOCS / page).read_text(encoding="utf-8")
    lines = text.split("\n")
    with tempfile.TemporaryDirectory() as folder:
        session = Session(Path(folder) / "session")
        session.give = lambda names: None  # all of it is this run's own
        made = []
        for block in (each for each in blocks(page) if each.language == "console"):
            told = []
            for command, _ in block.commands:
                print(f"$ {command}", file=sys.stderr, flush=True)
                output = (
                    session.shell(command, f"{page}:{block.line}")
                    .rstrip("\n")
                    .replace(f"{folder}/session/project", "/home/you")
                    .replace(folder, "/tmp")
                )
                told += [f"$ {command}", *([line.rstrip() for line in output.split("\n")] if output else [])]
            made.append((block, told))
    for block, told in reversed(made):
        length = len(block.text.split("\n")) - 1
        lines[block.line : block.line + length] = told
    text = "\n".join(lines)
    before, _, after = text.partition(PLACE)
    rest = after.partition("\n\n")[2]
    (DOCS / page).write_text(f"{before}{PLACE}{where()}\n\n{rest}", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
