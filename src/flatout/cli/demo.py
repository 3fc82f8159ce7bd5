"""`flatout demo`: the whole story on a bundled script."""

import shutil
from importlib.util import find_spec
from pathlib import Path

import click

from flatout.cli.options import json_option, out_option, verbose_option
from flatout.errors import UsageError

__all__ = ["demo"]

FOLDER = Path(".flatout") / "demo"
NEEDS = {"PIL": "pillow", "numpy": "numpy"}
"""What the script imports, and the package that brings it: an extra, because only the demo needs it."""


@click.command()
@json_option
@out_option
@verbose_option("Show the script's own output, and every finding with its numbers.")
def demo(json_file: Path | None, out: Path | None, verbose: bool) -> None:
    """Diagnose a bundled script, ordinary in every way, on real data."""
    from flatout.cli.diagnose import diagnose_and_present

    missing = [package for module, package in NEEDS.items() if find_spec(module) is None]
    if missing:
        raise UsageError(
            f"The demo's script imports {' and '.join(missing)}, which is not installed.",
            advice="pip install 'flatout[demo]'",
        )
    script = copy_script(FOLDER)
    click.echo(f"flatout: the script is {script}", err=True)
    diagnose_and_present((str(script),), json_file=json_file, out=out, verbose=verbose)


def copy_script(folder: Path) -> Path:
    """Copy the bundled script and its data to `folder`, where it can be read and changed; return the copy.

    Raises:
        UsageError: the folder cannot be written.
    """
    from flatout.demo import script

    bundled = script()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        copy = Path(shutil.copy(bundled, folder))
        if (bundled.parent / "data").is_dir():
            shutil.copytree(bundled.parent / "data", folder / "data", dirs_exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"{folder} cannot be written: {error.strerror}.",
            "The demo copies its script there, so that you can look at it and change it.",
            "Run it in a folder of yours.",
        ) from None
    return copy
