"""What to run: a script, a module, or any launcher line."""

import hashlib
import shutil
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from flatout.errors import NothingMeasured, UsageError

__all__ = ["Target", "arguments_digests", "parse_target", "script_digest"]

_LENGTHS = ("epoch", "step", "iter")  # in the names of options that say how long to train


@dataclass(frozen=True, slots=True)
class Target:
    """A command line to observe, the name people know it by, and the folder it is started in ("": this one)."""

    name: str
    command: tuple[str, ...]
    folder: str = ""

    @property
    def slug(self) -> str:
        """A folder name: the script's name without what a file system may not like."""
        kept = "".join(letter if letter.isalnum() or letter in "._-" else "_" for letter in Path(self.name).name)
        return kept.strip("._")[:60] or "script"

    @property
    def folders(self) -> tuple[Path, ...]:
        """The folders in which the names of edited files are looked up: the working folder, and the script's."""
        here = Path(self.folder).absolute()
        script = here / self.name
        beside = (script.parent,) if script.is_file() and script.parent != here else ()
        return (here, *beside)


def parse_target(words: Sequence[str]) -> Target:
    """Return what `train.py args`, `-m package.module args` or a launcher line stands for.

    Raises:
        UsageError: when there is no such script or command, or it is no Python file.
        NothingMeasured: when it is a Python that nothing can attach to.
    """
    if not words:
        raise UsageError("No script was given.", advice="Try: flatout diagnose train.py")
    first = words[0]
    if first == "-m":
        return _module(words)
    path = Path(first)
    if path.suffix == ".py" or (path.is_file() and not _is_program(path)):
        return _script(path, words)
    if path.is_dir() and (path / "__main__.py").is_file():
        return Target(name=first, command=(sys.executable, *words))
    if shutil.which(first) is None:
        what = "a folder without __main__.py" if path.is_dir() else "neither a Python file nor a command on PATH"
        raise UsageError(f"{first} is {what}.", advice="Give a script, -m and a module, or a launcher line after --.")
    _refuse_isolation(words)
    named = next((word for word in words[1:] if word.endswith(".py")), first)
    return Target(name=named, command=tuple(words))


def _is_program(path: Path) -> bool:
    """Return whether a file is machine code that can be started: `/usr/bin/python3`, `./launch`."""
    try:
        with path.open("rb") as file:
            start = file.read(1024)
    except OSError:
        return False
    return start[:2] != b"#!" and b"\0" in start and shutil.which(str(path.absolute())) is not None


def _refuse_isolation(words: Sequence[str]) -> None:
    """Refuse a Python that is told to ignore PYTHONPATH: its script would run unobserved, its files unprotected.

    Raises:
        NothingMeasured: when `words` hold such a Python.
    """
    python = next((number for number, word in enumerate(words) if Path(word).name.startswith("python")), len(words))
    options = iter(words[python + 1 :])
    for option in options:
        if not option.startswith("-") or option.startswith("--") or option == "-":
            return
        for position, letter in enumerate(option[1:], start=2):
            if letter in "ISE":
                raise NothingMeasured(
                    f"flatout cannot attach to {words[python]} {option}.",
                    f"It attaches through PYTHONPATH, which -{letter} makes Python ignore.",
                    "Nothing was run. Start the script without that option.",
                )
            if letter in "cm":
                return
            if letter in "XW":
                if position == len(option):
                    next(options, None)
                break


def _module(words: Sequence[str]) -> Target:
    if len(words) < 2 or words[1].startswith("-"):
        raise UsageError("-m was given without a module.", advice="Try: flatout diagnose -m package.module")
    return Target(name=words[1], command=(sys.executable, *words))


def _script(path: Path, words: Sequence[str]) -> Target:
    if not path.exists():
        raise UsageError(f"{path} does not exist.", f"The working folder is {Path.cwd()}.")
    if path.is_dir():
        raise UsageError(f"{path} is a folder.", advice="Give the script inside it.")
    try:
        source = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}).") from None
    if path.suffix != ".py" and shutil.which(str(path.absolute())) is not None and source[:2] == b"#!":
        return Target(name=str(path), command=(str(path.absolute()), *words[1:]))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what there is to say about the source, the script's own start says
            compile(source, str(path), "exec", dont_inherit=True)
    except SyntaxError as error:
        where = f" line {error.lineno}:" if error.lineno else ""
        python = f"Python {sys.version_info.major}.{sys.version_info.minor}"
        raise UsageError(f"{path} is not a {python} file:{where} {error.msg}.") from None
    except ValueError as error:
        raise UsageError(f"{path} is not a Python file ({error}).") from None
    return Target(name=str(path), command=(sys.executable, *words))


def script_digest(target: Target) -> str:
    """Return 16 hexadecimal digits of the SHA-256 of the script's file, "" where no file can be told from the name.

    A module's file is looked for below the working folder only: finding it elsewhere could mean importing packages.
    """
    inner = target.name.replace(".", "/")
    for path in (Path(target.name), Path(inner + ".py"), Path(inner) / "__main__.py"):
        if path.is_file():
            try:
                return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
            except OSError:
                return ""
    return ""


def arguments_digests(target: Target) -> tuple[str, str]:
    """Return fingerprints of a script's arguments, and of those that do not say how long it trains.

    They tell whether a length that was read from one training holds for another; what the words were stays out of it.
    """
    place = target.command.index(target.name) if target.name in target.command else 0
    words = target.command[place + 1 :]
    others, skips = [], False
    for word in words:
        names_length = word.startswith("-") and any(each in word.partition("=")[0].lower() for each in _LENGTHS)
        if not (names_length or (skips and not word.startswith("-"))):
            others.append(word)
        skips = names_length and "=" not in word
    return _digest(words), _digest(others)


def _digest(words: Sequence[str]) -> str:
    return hashlib.sha256("\0".join(words).encode(errors="surrogateescape")).hexdigest()[:16]
