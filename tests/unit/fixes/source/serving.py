"""A folder with a script whose edited text Python serves: what the tests of edited source share."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import flatout

PACKAGE = Path(flatout.__file__).parent
WAY_IN = os.pathsep.join([str(PACKAGE / "inject"), str(PACKAGE.parent)])


class Served:
    """Files, their edited forms, and the order that serves these."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "order" / "parts").mkdir(parents=True)
        self.order = folder / "order" / "under-recipe.json"
        self._files: list[dict] = []

    def write(self, name: str, text: str, edited: str | None = None, edit: str = "e") -> Path:
        """Write a file, and let it run as `edited` from now on."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
        if edited is not None:
            digest = hashlib.sha256(text.encode()).hexdigest()
            self._files.append({"path": os.path.realpath(path), "digest": digest, "text": edited, "edits": [edit]})
        body = {"mode": "run", "folder": str(self.order.parent), "script": "train.py", "edited": self._files}
        self.order.write_text(json.dumps(body))
        return path

    def run(self, *words: str, stdin: str = "", cwd: str = "", python=(sys.executable,), **environment: str):
        """Run Python on `words` in the folder; return how it ended, with its output as text."""
        return subprocess.run(
            [*python, *words], cwd=self.folder / cwd, input=stdin, capture_output=True, text=True, timeout=60,
            check=False, env=self.environment | environment,
        )  # fmt: skip

    @property
    def environment(self) -> dict[str, str]:
        """What every process of such a training is started with."""
        return {**os.environ, "PYTHONPATH": WAY_IN, "FLATOUT_ORDER": str(self.order)}

    def plain(self, *words: str, cwd: str = "", **environment: str):
        """Run Python as it would run without flatout."""
        return self.run(*words, cwd=cwd, PYTHONPATH="", FLATOUT_ORDER="", **environment)
