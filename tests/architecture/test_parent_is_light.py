"""The parent process starts in milliseconds and holds no device memory: measured on fresh interpreters."""

import json
import subprocess
import sys

import pytest

from tests.architecture.source import modules
from tests.architecture.test_layers import PARENT

LOAD_AND_LIST = """
import importlib, json, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
print(json.dumps(list(sys.modules)))
"""


def loaded_by(*names: str) -> set[str]:
    """Return the top-level modules in `sys.modules` after a fresh interpreter has imported `names`."""
    command = [sys.executable, "-c", LOAD_AND_LIST, *names]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return {name.split(".")[0] for name in json.loads(done.stdout)}


def test_importing_flatout_loads_nothing_heavy():
    heavy = loaded_by("flatout") & {"torch", "numpy", "rich", "click", "psutil", "pynvml"}
    assert not heavy


@pytest.mark.parametrize("layer", [layer for layer in PARENT if layer not in ("", "__main__")])
@pytest.mark.slow
def test_the_parent_loads_neither_torch_nor_numpy(layer: str):
    names = [m.name for m in modules().values() if m.layer == layer]
    if not names:
        pytest.skip(f"{layer} does not exist yet")
    heavy = loaded_by(*names) & {"torch", "numpy"}
    assert not heavy
