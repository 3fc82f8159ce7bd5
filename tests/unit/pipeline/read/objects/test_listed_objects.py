"""What folders and patterns name."""

import fsspec
import pytest
from tests.unit.pipeline.read.objects.served import put

from flatout.errors import BadObject
from flatout.pipeline.read.objects.listed_objects import found_objects

NAMES = ["a.jpg", "b.png", "dogs/1.jpg", "dogs/2.jpg", "dogs/small/3.jpg", "dogs2/4.jpg", "ü/5 6.jpg"]

PATTERNS = {
    "": NAMES,
    "dogs/": [name for name in NAMES if name.startswith("dogs/")],
    "*.jpg": ["a.jpg"],
    "**/*.jpg": [name for name in NAMES if name.endswith(".jpg")],
    "dogs/*.jpg": ["dogs/1.jpg", "dogs/2.jpg"],
    "dogs*/?.jpg": ["dogs/1.jpg", "dogs/2.jpg", "dogs2/4.jpg"],
    "dogs/[!1].jpg": ["dogs/2.jpg"],
    "dogs/[1-2].jpg": ["dogs/1.jpg", "dogs/2.jpg"],
    "dogs/1.jpg": ["dogs/1.jpg"],
    "**": NAMES,
}


@pytest.mark.parametrize("pattern", PATTERNS)
def test_on_this_machine(tmp_path, pattern):
    for name in NAMES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    for above in (f"{tmp_path}/", f"file://{tmp_path}/"):
        assert found_objects(above + pattern, {}) == [above + name for name in PATTERNS[pattern]]
    assert found_objects(f"{tmp_path}/dogs", {}) == [f"{tmp_path}/{name}" for name in PATTERNS["dogs/"]]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_in_a_store_of_fsspec(pattern):
    system = fsspec.filesystem("memory")
    system.store.clear()
    for name in NAMES:
        system.pipe(f"/top/{name}", b"1")
    assert found_objects(f"memory://top/{pattern}", {}) == [f"memory://top/{name}" for name in PATTERNS[pattern]]
    system.store.clear()


@pytest.mark.slow
@pytest.mark.parametrize("pattern", ["", "dogs/", "**/*.jpg", "dogs/[!1].jpg"])
def test_in_s3(server, options, pattern):
    pytest.importorskip("obstore")
    for name in NAMES:
        server.objects[f"/bucket/top/{name}"] = b"1"
    put(server, 2, folder="topmost")
    found = found_objects(f"s3://bucket/top/{pattern}", options)
    assert found == [f"s3://bucket/top/{name}" for name in PATTERNS[pattern]]
    if not pattern:
        assert len(found_objects("s3://bucket/", options)) == len(NAMES) + 2


def test_a_url_of_the_web_is_no_pattern():
    assert found_objects("https://host/a[1]*.jpg", {}) == ["https://host/a[1]*.jpg"]


def test_nothing_is_an_error(tmp_path):
    for named in (f"{tmp_path}/", f"{tmp_path}/*.jpg", f"{tmp_path}/none/*.jpg", "memory://nowhere/"):
        with pytest.raises(BadObject):
            found_objects(named, {})
