"""The bundled demo is complete, licensed, and trains where it is told to.

Modules: flatout.demo.train.
"""

import io
import os
import subprocess
import sys
import zipfile
from collections import Counter
from pathlib import Path

import pytest
from PIL import Image

from flatout import demo

ARCHIVE = demo.script().parent / "data" / "digits.zip"
PER_DIGIT = (178, 182, 177, 183, 181, 182, 181, 179, 174, 180)


def names() -> list[str]:
    with zipfile.ZipFile(ARCHIVE) as archive:
        return archive.namelist()


def test_every_image_of_the_source_is_there_once() -> None:
    rows = [Path(name).stem for name in names()]
    assert sorted(rows) == [f"{row:04d}" for row in range(1797)]
    digits = Counter(int(Path(name).parent.name) for name in names())
    assert tuple(digits[digit] for digit in range(10)) == PER_DIGIT


def test_one_image_in_five_of_each_digit_is_kept_for_the_test() -> None:
    splits = Counter(tuple(name.split("/")[:2]) for name in names())
    for digit, images in enumerate(PER_DIGIT):
        assert splits["test", str(digit)] == images // 5
        assert splits["train", str(digit)] == images - images // 5


def test_every_image_decodes_to_a_digit_with_ink() -> None:
    with zipfile.ZipFile(ARCHIVE) as archive:
        for name in archive.namelist():
            with Image.open(io.BytesIO(archive.read(name))) as image:
                assert (image.size, image.mode, image.format) == ((8, 8), "L", "PNG"), name
                assert image.getextrema()[1] > 200, name


def test_the_archive_stays_small() -> None:
    assert ARCHIVE.stat().st_size < 500_000


def test_the_licence_names_source_terms_and_changes() -> None:
    text = demo.licence().read_text(encoding="ascii")
    for fact in ("CC BY 4.0", "Alpaydin", "Kaynak", "10.24432/C50P49", "What was changed"):
        assert fact in text


def test_importing_the_demo_loads_no_torch() -> None:
    code = "import sys, flatout.demo as d; d.script(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], env=environment()).returncode == 0


def test_unpack_gives_folders_a_script_can_read(tmp_path: Path) -> None:
    folder = demo.unpack(tmp_path / "new" / "digits")
    assert len(list(folder.glob("*/*/*.png"))) == 1797
    assert (folder / "LICENSE.txt").is_file()
    assert [entry.name for entry in (tmp_path / "new").iterdir()] == ["digits"]


def test_unpack_leaves_an_existing_folder_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("kept")
    assert demo.unpack(tmp_path) == tmp_path
    assert [entry.name for entry in tmp_path.iterdir()] == ["mine"]


def test_a_failed_unpack_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: zipfile.ZipFile, path: Path) -> None:
        self.extract(self.namelist()[0], path)
        raise OSError("disk full")

    monkeypatch.setattr(zipfile.ZipFile, "extractall", fail)
    with pytest.raises(OSError, match="disk full"):
        demo.unpack(tmp_path / "digits")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_script_trains_on_a_small_folder(tmp_path: Path) -> None:
    keep = [name for name in names() if int(Path(name).stem) < 120]
    with zipfile.ZipFile(ARCHIVE) as archive:
        archive.extractall(tmp_path / "few", keep)
    lines = train(tmp_path, "--data", str(tmp_path / "few"), "--epochs", "2")
    assert [line.split(":")[0] for line in lines] == ["epoch  1", "epoch  2"]
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["checkpoint.pt", "few"]


@pytest.mark.slow
@pytest.mark.full
def test_the_script_learns_the_bundled_digits_and_cleans_up(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    lines = train(tmp_path, "--epochs", "4", TMPDIR=str(tmp_path / "tmp"))
    assert float(lines[-1].split()[-1]) > 0.85
    assert list((tmp_path / "tmp").glob("**/*.png")) == []


def train(cwd: Path, *arguments: str, **variables: str) -> list[str]:
    command = [sys.executable, str(demo.script()), *arguments]
    done = subprocess.run(command, cwd=cwd, env=environment(**variables), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def environment(**variables: str) -> dict[str, str]:
    source = str(Path(demo.__file__).parents[2])
    return {**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1", **variables}
