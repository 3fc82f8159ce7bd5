"""Lists of members of tar archives, kept: whatever a script does with an archive, it gets what it would without."""

import io
import os
import random
import tarfile
from pathlib import Path

import pytest

from flatout.kept import known_files, tar_directories
from flatout.kept.known_files import KnownFiles
from flatout.kept.tar_directories import TarDirectories

NAMES = ("_load", "getmember")
PLAIN = {name: getattr(tarfile.TarFile, name) for name in NAMES}


class Fix:
    """Switches what stands for the functions of `tarfile` on and off."""

    def __init__(self, monkeypatch):
        self.acted, self._patch, self.opened = 0, monkeypatch, []
        self.tars = TarDirectories(KnownFiles(lambda reason: None), self._act)
        self._made = {
            "_load": self.tars.loading(PLAIN["_load"]),
            "getmember": self.tars.finding(PLAIN["getmember"]),
        }
        monkeypatch.setattr(
            tarfile.TarFile, "__getattr__", lambda one, name: self.tars.absent(one, name), raising=False
        )

    def _act(self):
        self.acted += 1

    def open(self, *args, **kwargs):
        """Open an archive that is closed when the test is over."""
        self.opened.append(tarfile.open(*args, **kwargs))  # noqa: SIM115
        return self.opened[-1]

    def switch(self, on):
        for name in NAMES:
            self._patch.setattr(tarfile.TarFile, name, self._made[name] if on else PLAIN[name])


@pytest.fixture
def fix(monkeypatch):
    monkeypatch.setattr(known_files, "_RESTED_NS", -1)
    monkeypatch.setattr(known_files, "_kind_of", lambda device: "ext4")
    made = Fix(monkeypatch)
    made.switch(True)
    yield made
    for archive in made.opened:
        archive.close()


def add(archive, name, content=b"", **fields):
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for field, value in fields.items():
        setattr(info, field, value)
    archive.addfile(info, io.BytesIO(content))


@pytest.fixture(params=[tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def path(tmp_path, request):
    file = str(tmp_path / "a.tar")
    with tarfile.open(file, "w", format=request.param) as archive:
        for number in range(7):
            add(archive, f"{number}.bin", bytes([number]) * (300 * number + 1), mtime=1000 + number)
        add(archive, "folder/", type=tarfile.DIRTYPE)
        add(archive, "link", type=tarfile.SYMTYPE, linkname="3.bin")
        add(archive, "hard", type=tarfile.LNKTYPE, linkname="4.bin")
        add(archive, "folder/" + "é" * 20, b"text")
        add(archive, "2.bin", b"newer")
    return file


def warm(path, times=2):
    for _ in range(times):
        with tarfile.open(path, "r:") as archive:
            archive.getnames()


def told(info):
    return {name: getattr(info, name, "none") for name in tar_directories._SLOTS}


def state(archive):
    held = {name: value for name, value in vars(archive).items() if name not in ("fileobj", "members", "firstmember")}
    return held, [told(info) for info in archive.members], archive.fileobj.tell()


def test_headers_are_read_twice_and_then_no_more(fix, path):
    warm(path)
    assert fix.acted == 0
    with tarfile.open(path, "r:") as archive:
        assert archive.extractfile("3.bin").read() == bytes([3]) * 901
        assert archive.extractfile("2.bin").read() == b"newer"
    assert fix.acted == 1


@pytest.mark.parametrize("ask", ["getmember", "getmembers", "next", "iterate"])
def test_an_archive_stands_as_after_reading_all_headers(fix, path, ask):
    def asked():
        archive = fix.open(path, "r:")
        archive.getmember("1.bin") if ask != "getmembers" else archive.getmembers()
        said = archive.next() if ask == "next" else [each.name for each in archive] if ask == "iterate" else None
        archive.fileobj.seek(0)
        archive.getmembers()
        return said, state(archive), archive.firstmember

    warm(path)
    kept = asked()
    assert fix.acted == 1
    fix.switch(False)
    assert kept == asked()


def test_a_member_is_one_object_however_it_is_reached(fix, path):
    warm(path)
    archive = fix.open(path, "r:")
    first = archive.firstmember
    member = archive.getmember("4.bin")
    assert archive.getmember("4.bin") is member
    assert archive.getmember("0.bin") is first
    assert archive.getmembers()[4] is member
    assert archive.getmembers()[0] is first
    assert archive.members is archive.getmembers()
    assert archive.getmember("4.bin") is member


def test_links_are_followed(fix, path):
    warm(path)
    with tarfile.open(path, "r:") as archive:
        assert archive.extractfile("link").read() == bytes([3]) * 901
        assert archive.extractfile("hard").read() == bytes([4]) * 1201
    assert fix.acted == 1


def test_a_member_that_the_script_renames_is_found_by_its_new_name_in_that_archive_alone(fix, path):
    warm(path)
    archive = fix.open(path, "r:")
    member = archive.getmember("4.bin")
    member.name = "renamed"
    member.pax_headers["mine"] = "1"
    with pytest.raises(KeyError, match=r"filename '4.bin' not found"):
        archive.getmember("4.bin")
    assert archive.getmember("renamed") is member
    other = fix.open(path, "r:").getmember("4.bin")
    assert "mine" not in other.pax_headers
    assert fix.acted == 2


def test_a_first_member_that_was_changed_and_an_archive_that_is_walked_are_left_alone(fix, path):
    warm(path)
    changed, walked = fix.open(path, "r:"), fix.open(path, "r:")
    changed.firstmember.name = "mine"
    walked.next()
    walked.next()
    assert changed.getnames()[0] == "mine"
    assert len(walked.getmembers()) == 12
    assert fix.acted == 0


def test_what_is_not_there_raises_what_it_would(fix, path):
    warm(path)
    archive = fix.open(path, "r:")
    with pytest.raises(KeyError, match="filename 'none' not found"):
        archive.getmember("none")
    with pytest.raises(AttributeError, match="'TarFile' object has no attribute 'nothing'"):
        archive.nothing  # noqa: B018
    archive.close()
    with pytest.raises(OSError, match="TarFile is closed"):
        archive.getmember("1.bin")
    opened = fix.open(path, "r:")
    opened.getmember("1.bin")
    opened.close()
    with pytest.raises(OSError, match="TarFile is closed"):
        opened.getmember("1.bin")


def test_a_file_that_was_written_or_replaced_is_read_again(fix, path):
    warm(path, 3)
    assert fix.acted == 1
    with tarfile.open(path, "a") as archive:
        add(archive, "appended", b"1")
    assert fix.open(path, "r:").getmember("appended").size == 1
    os.rename(path, path + ".old")
    with tarfile.open(path, "w") as archive:
        add(archive, "other", b"1")
    assert fix.open(path, "r:").getnames() == ["other"]
    assert fix.acted == 1


class Own(tarfile.TarFile):
    pass


def test_other_ways_to_open_are_left_alone(fix, path, tmp_path):
    warm(path)
    packed = str(tmp_path / "a.tar.gz")
    with tarfile.open(packed, "w:gz") as archive:
        add(archive, "1.bin", b"1")
    for _ in range(3):
        with Own.open(path, "r:") as own:
            own.getnames()
        fix.open(packed).getnames()
        fix.open(path, "r|").getnames()
        fix.open(fileobj=io.BytesIO(Path(path).read_bytes())).getnames()
        fix.open(path, "r:", ignore_zeros=True).getnames()
    assert fix.acted == 0


def test_a_damaged_archive_says_so_each_time(fix, path):
    content = Path(path).read_bytes()
    Path(path).write_bytes(content[:4500])
    for _ in range(4):
        with pytest.raises(tarfile.ReadError, match="unexpected end of data"):
            fix.open(path, "r:").getnames()
    assert fix.acted == 0


def test_ways_to_decode_names_are_told_apart(fix, path):
    warm(path, 3)
    names = fix.open(path, "r:", encoding="latin-1", errors="replace").getnames()
    fix.switch(False)
    assert names == fix.open(path, "r:", encoding="latin-1", errors="replace").getnames()


OPERATIONS = (
    lambda archive, rng: archive.extractfile(f"{rng.randrange(7)}.bin").read(),
    lambda archive, rng: told(archive.getmember(f"{rng.randrange(7)}.bin")),
    lambda archive, rng: archive.getnames(),
    lambda archive, rng: setattr(archive.getmember(f"{rng.randrange(7)}.bin"), "mtime", 5),
    lambda archive, rng: setattr(archive.getmember(f"{rng.randrange(7)}.bin"), "name", "renamed"),
    lambda archive, rng: archive.getmembers().pop().name,
    lambda archive, rng: [told(info) for info in archive],
    lambda archive, rng: getattr(archive.next(), "name", None),
    lambda archive, rng: archive.offset,
    lambda archive, rng: archive.getmember("none"),
    lambda archive, rng: archive.nothing,
)


def transcript(path, seed):
    rng, said = random.Random(seed), []
    with tarfile.open(path, "r:") as archive:
        for _ in range(rng.randrange(1, 10)):
            try:
                said.append(rng.choice(OPERATIONS)(archive, rng))
            except Exception as error:
                said.append((type(error), str(error)))
    return said


def test_any_order_of_questions_gets_the_same_answers(fix, path):
    warm(path)
    for seed in range(200):
        kept = transcript(path, seed)
        fix.switch(False)
        assert kept == transcript(path, seed)
        fix.switch(True)
    assert fix.acted > 100
