"""Write the repaired twins of planted scripts out as files, and take edited ones back as patches.

`write` puts the twins of the named scripts into FOLDER, all of them without a name; that of a script without a patch
yet is a copy without marks, for the flaw to be taken out of. `take` makes `repairs/NAME.diff` from what is in FOLDER
and in `flawed`, of the planted suite or of `--suite unseen/set_1`. A patch fits the script that it was made from, line
for line: write the twin before you change the script, then change both.

    python benchmarks/planted_twins.py write build/twins char_lm
    python benchmarks/planted_twins.py take build/twins char_lm
"""

import argparse
import sys
from pathlib import Path

from planted_suite import MARK, SECOND_MARK, SUITE, Script, read_truth, write_texts
from strict_patch import PatchError, patched

from flatout.edits.diff import unified_diff


def write(script: Script, folder: Path) -> str:
    """Write the twin of a script into `folder` and return a line that says so."""
    if script.repair.exists():
        texts = script.twin()
    else:
        texts = {name: without_marks(text) for name, text in script.texts(script.home).items()}
    write_texts(texts, folder)
    return f"{script.name}: {', '.join(str(folder / name) for name in texts)}"


def without_marks(text: bytes) -> bytes:
    """Return a text without the comments that mark a flaw."""
    return text.replace(f"  {SECOND_MARK}\n".encode(), b"\n").replace(f"  {MARK}\n".encode(), b"\n")


def take(script: Script, folder: Path) -> str:
    """Make the patch of a script from its twin in `folder` and return a line that says so."""
    script.repair.parent.mkdir(exist_ok=True)
    script.repair.write_bytes(repair_by(script, script.texts(folder)))
    return f"{script.name}: {script.repair}"


def repair_by(script: Script, twin: dict[str, bytes]) -> bytes:
    """Return the patch that changes a script into its twin."""
    flawed = script.texts(script.home)
    if flawed.keys() != twin.keys():
        raise PatchError(f"the twin has the files {', '.join(twin) or 'none'}, the script {', '.join(flawed)}")
    diff = b"".join(unified_diff(text, twin[name], name) for name, text in flawed.items())
    if patched(flawed, diff) != twin:  # a last line without its end has no place in these patches
        raise PatchError("each file has to end with a line end")
    return diff


def main() -> int:
    """Write or take the twins that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task", choices=["write", "take"], help="twins into FOLDER, or patches from FOLDER")
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="of twins, laid out as planted/flawed is")
    parser.add_argument("names", nargs="*", metavar="NAME", help="of scripts; all without one")
    parser.add_argument("--suite", type=Path, default=SUITE, help="the folder of truth.toml")
    options = parser.parse_args()
    scripts = {script.name: script for script in read_truth(options.suite.resolve()) if script.kind == "flawed"}
    if unknown := set(options.names) - scripts.keys():
        parser.error(f"{', '.join(sorted(unknown))}: no table [flawed.NAME] of {options.suite / 'truth.toml'}")
    for name in options.names or scripts:
        try:
            print((write if options.task == "write" else take)(scripts[name], options.folder))
        except (OSError, PatchError) as failure:
            print(f"error: {name}: {failure}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
