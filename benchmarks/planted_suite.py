"""The scripts of a suite: what its `truth.toml` says of each, its files, and its twin without the flaw.

Suites are `planted` and the sets of `unseen`.

A twin is not kept as a script. `repairs/NAME.diff` changes the flawed script into it, so the two differ by what
the patch shows and by nothing else. `planted_twins.py` writes twins out, and takes edited ones back as patches.
"""

import ast
import hashlib
import tomllib
from dataclasses import dataclass
from pathlib import Path

from strict_patch import patched

SUITE = Path(__file__).resolve().parent / "planted"
MARK, SECOND_MARK = "# <<", "# <<2"


@dataclass(frozen=True)
class Cause:
    """A planted flaw: what an expert would call it, and whether it has a line of its own."""

    phases: tuple[str, ...]
    codes: tuple[str, ...]
    why: str
    line: bool = False
    mark: str = MARK


@dataclass(frozen=True)
class Script:
    """One script of the suite and what is known about it."""

    name: str
    kind: str
    why: str
    causes: tuple[Cause, ...] = ()
    package: bool = False
    args: tuple[str, ...] = ()
    quick: bool = False
    ranks: int = 1
    style: str = ""
    semantic: bool = False  # its twin is another training
    equal: str = ""  # how the twin's training equals the script's: bitwise, rounding, precision, another; "": not told
    suite: Path = SUITE

    @property
    def home(self) -> Path:
        """Return the folder that holds the script."""
        return self.suite / self.kind

    @property
    def repair(self) -> Path:
        """Return the patch that changes a flawed script into its twin."""
        return self.suite / "repairs" / f"{self.name}.diff"

    def files(self, folder: Path) -> list[Path]:
        """Return the Python files of this script in `folder`, the entry file of a plain script first."""
        single = folder / f"{self.name}.py"
        return [single] if single.exists() else sorted((folder / self.name).glob("*.py"))

    def texts(self, folder: Path) -> dict[str, bytes]:
        """Return what is in each of these files, by its path below `folder`."""
        return {path.relative_to(folder).as_posix(): path.read_bytes() for path in self.files(folder)}

    def twin(self) -> dict[str, bytes]:
        """Return the same of the script without its flaw; raises `PatchError` where the patch is not of this script."""
        return patched(self.texts(self.home), self.repair.read_bytes())

    def command(self, folder: Path) -> list[str]:
        """Return the command line behind `python` for what `folder` holds of it; of several ranks that of torchrun."""
        if self.ranks > 1:
            launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(self.ranks)]
            return [*launcher, str(folder / f"{self.name}.py"), *self.args]
        if self.package:
            return ["-m", self.name, *self.args]
        single = folder / f"{self.name}.py"
        entry = single if single.exists() else folder / self.name / "train.py"
        return [str(entry), *self.args]

    def digest(self) -> str:
        """Return a fingerprint of everything that is run for this script."""
        sources = [*self.texts(self.home).values()]
        if self.kind == "flawed":
            sources += self.twin().values()
        return hashlib.sha256(b"\0".join([*sources, repr(self.args).encode()])).hexdigest()[:16]

    def marked_lines(self, cause: Cause) -> set[tuple[Path, int]]:
        """Return the (file, line) pairs that may be named for `cause`: of a statement over several lines, any."""
        return {
            (path, line)
            for path in self.files(self.home)
            for number, text in enumerate(path.read_text().splitlines(), 1)
            if text.endswith(cause.mark)
            for line in statement_lines(path, number)
        }


def statement_lines(path: Path, line: int) -> range:
    """Return the lines of the statement on a line: a call over several lines is one place; a loop is its line."""
    simple = [
        node
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.stmt) and not hasattr(node, "body") and node.lineno <= line <= node.end_lineno
    ]
    return range(simple[0].lineno, simple[0].end_lineno + 1) if simple else range(line, line + 1)


def read_truth(suite: Path = SUITE) -> list[Script]:
    """Return every script of the `truth.toml` of a suite, flawed ones first."""
    truth = tomllib.loads((suite / "truth.toml").read_text())
    return [
        read_script(name, kind, entry, suite) for kind in ("flawed", "healthy") for name, entry in truth[kind].items()
    ]


def read_script(name: str, kind: str, entry: dict, suite: Path = SUITE) -> Script:
    """Return one table of `truth.toml`; its own cause comes first, the one of its table `second` after it.

    Whoever writes a set that no rule has seen does not know the rules: its causes have no `codes`.
    """
    told = {key: tuple(value) if isinstance(value, list) else value for key, value in entry.items() if key != "second"}
    causes = []
    if kind == "flawed":
        first = {"phases": told.pop("phases"), "codes": told.pop("codes", ()), "line": told.pop("line")}
        causes.append(Cause(**first, why=told["why"]))
        if second := entry.get("second"):
            fields = {key: tuple(value) if isinstance(value, list) else value for key, value in second.items()}
            causes.append(Cause(**fields, mark=SECOND_MARK))
    return Script(name=name, kind=kind, causes=tuple(causes), suite=suite, **told)


def write_texts(texts: dict[str, bytes], folder: Path) -> None:
    """Write files below `folder`; raises `FileExistsError` rather than replace one."""
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as file:
            file.write(text)
