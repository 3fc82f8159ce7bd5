"""Scripts with one fault each, diagnosed on a real CUDA device: the fault comes first, but for what float32 costs."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]

SCRIPTS = Path(__file__).parent / "one_fault"
FAULTS = {
    "launch_bound": ("CO013", None),
    "attention_by_hand": ("CO012", 19),
    "channels_first": ("CO011", None),
    "blocking_copies": ("TR002", 17),
    "waits_in_the_step": ("SY001", 17),
    "allocator_retries": ("ME004", None),
    "unaligned_product": ("CO017", 18),
    "search_for_each_shape": ("CO016", None),
    "unsearched_convolution": ("CO015", None),
}


@pytest.mark.parametrize("name", FAULTS)
def test_the_fault_is_found_at_its_line(tmp_path, name):
    shutil.copy(SCRIPTS / f"{name}.py", tmp_path / "train.py")
    command = [sys.executable, "-m", "flatout", "diagnose", "--json", "-", "train.py"]
    said = subprocess.run(command, cwd=tmp_path, check=True, timeout=200, capture_output=True, text=True).stdout
    found = [each for each in json.loads(said)["findings"] if each["code"] not in ("CO010", "MS001")]
    code, line = FAULTS[name]
    assert found[0]["code"] == code
    assert line is None or found[0]["location"]["line"] == line
