"""What a user installs: a wheel made from the source distribution, with and without a C compiler."""

import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]
ASKED = """
import importlib, json, pathlib
import flatout
from flatout.native import native
from flatout.watch.memory import layouts
from flatout.fixes.core.catalog import fixes
from flatout.rules import catalog
from flatout.rules.core.measured_section import measured_section
import flatout.demo

def there(name):
    try:
        importlib.import_module(name)
    except ImportError:
        return False
    return True

folder = pathlib.Path(flatout.__file__).parent
print(json.dumps({
    "folder": str(folder),
    "compiled": [native.available(), layouts.compiled is not None, there("flatout.optimizers._steps"),
                 there("flatout.probe._ticks")],
    "files": sorted(name for name in ("inject/sitecustomize.py", "demo/data/digits.zip", "report/html/page.html",
                                      "rules/core/measured.toml", "py.typed") if (folder / name).is_file()),
    "rules": len(catalog()), "fixes": len(fixes()),
}))
"""


def run(*words, **environment):
    done = subprocess.run(
        words, cwd=REPO, capture_output=True, text=True, timeout=280, check=False, env={**os.environ, **environment}
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """The source distribution, unpacked in a folder that holds nothing else."""
    folder = tmp_path_factory.mktemp("sdist")
    copy = folder / "copy"  # building leaves files beside setup.py
    files = run("git", "ls-files", "-z").split("\0")
    for name in filter(None, files):
        if (REPO / name).is_file() and not name.startswith(("benchmarks/", "tests/")):
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            (copy / name).write_bytes((REPO / name).read_bytes())
    code = "import setuptools.build_meta as meta, sys; print(meta.build_sdist(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder)], cwd=copy, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    with tarfile.open(folder / done.stdout.split()[-1]) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    (unpacked,) = (folder / "unpacked").iterdir()
    return unpacked


@pytest.mark.slow
@pytest.mark.parametrize("compiler", [True, False])
@pytest.mark.few(1)
def test_the_source_distribution_installs_in_an_empty_folder(source, tmp_path, compiler):
    """Without a compiler the parts in C are left out, and all else is there."""
    given = {} if compiler else {"CC": "/bin/false", "CXX": "/bin/false"}
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    shutil.copytree(source, tmp_path / "source")  # pip builds where it is
    run(*pip, "--target", str(tmp_path / "site"), str(tmp_path / "source"), **given)
    told = subprocess.run(
        [sys.executable, "-c", ASKED], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "site")},
    )  # fmt: skip
    assert told.returncode == 0, told.stderr[-2000:]
    found = json.loads(told.stdout)
    assert found["folder"] == str(tmp_path / "site" / "flatout")
    assert found["compiled"] == [compiler] * 4
    assert len(found["files"]) == 5
    assert found["rules"] > 60
    assert found["fixes"] > 20
