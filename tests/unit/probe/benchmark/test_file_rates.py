"""Files that samples come from, read again."""

import subprocess
import sys

import pytest

from flatout.probe.benchmark import file_rates
from flatout.probe.benchmark.file_rates import SampleFiles, file_rate


def test_files_opened_meanwhile_are_found_and_their_bytes_counted(tmp_path):
    (tmp_path / "a.bin").write_bytes(bytes(100_000))
    (tmp_path / "before.bin").write_bytes(bytes(10))
    (tmp_path / "code.py").write_text("x = 1\n")
    (tmp_path / "before.bin").read_bytes()
    with SampleFiles() as read:
        (tmp_path / "a.bin").read_bytes()
        (tmp_path / "a.bin").read_bytes()
        (tmp_path / "code.py").read_bytes()
        with pytest.raises(FileNotFoundError):
            (tmp_path / "missing.bin").read_bytes()
    (tmp_path / "before.bin").read_bytes()
    assert read.found() == [str(tmp_path / "a.bin")]
    assert read.read_bytes >= 200_000 or sys.platform != "linux"


def test_files_that_are_held_open_are_found_where_none_is_opened(tmp_path):
    (tmp_path / "held.bin").write_bytes(bytes(100_000))
    with open(tmp_path / "held.bin", "rb", buffering=0) as held:
        with SampleFiles() as idle:
            pass
        with SampleFiles() as read:
            held.read()
        assert idle.found() == []
        assert str(tmp_path / "held.bin") in read.found()


def test_what_is_read_again_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(file_rates, "_MOST_BYTES", 3 << 20)
    names = []
    for number in range(4):
        (tmp_path / f"{number}.bin").write_bytes(bytes(2 << 20))
        names.append(str(tmp_path / f"{number}.bin"))
    rate = file_rate(names, 12.0)
    assert (rate.files, rate.num_bytes, rate.read_per_batch) == (2, 3 << 20, 12.0)
    assert rate.disk_mb_s.median > 0
    assert rate.memory_mb_s.n >= 1


def test_files_that_cannot_be_read_give_no_rate(tmp_path):
    assert file_rate([], 0.0) is None
    assert file_rate([str(tmp_path / "gone.bin")], 0.0) is None


def test_the_interpreter_is_listened_to_once_however_often_it_is_measured():
    program = (
        "import sys\n"
        "hooks = []\n"
        "plain, sys.addaudithook = sys.addaudithook, lambda hook: hooks.append(hook)\n"
        "from flatout.probe.benchmark.file_rates import SampleFiles\n"
        "for _ in range(3):\n"
        "    with SampleFiles():\n"
        "        pass\n"
        "print(len(hooks))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "1\n"
