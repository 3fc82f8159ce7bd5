"""Keys: what samples depend on changes them, and nothing else does; in another process they are the same.

Modules: flatout.pipeline.cache.disk.key_code.
"""

import collections
import dataclasses
import enum
import functools
import importlib
import io
import multiprocessing
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import types
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from flatout.pipeline.cache.disk.key_versions import owner_of
from flatout.pipeline.cache.disk.keys import Key, KeyLimits, key_of

pytestmark = pytest.mark.slow

SOURCE = """
import functools
import math

import numpy as np
import torch
from PIL import Image

MEAN = 0.5
TABLE = {"a": [1, 2], "b": [3]}
UNUSED = 1


def noted(function):
    @functools.wraps(function)
    def inner(x):
        return function(x) * 1.0

    return inner


@noted
def scaled(x):
    return (x - MEAN) / math.pi


def times(factor):
    return lambda x: x * factor


class Plain(torch.utils.data.Dataset):
    def label(self, index):
        return index % 7


class Brighter:
    def __init__(self, by, kind="add"):
        self.by = by
        self.kind = kind

    def __call__(self, x):
        return x + self.by if self.kind in {"add", "sum", "plus"} else x


class Images(Plain):
    SIZE = 28

    def __init__(self, root):
        self.root = root
        self.pixels = np.arange(7840, dtype=np.uint8).reshape(10, 28, 28)
        self.targets = torch.arange(10)
        self.names = ["x", "y", "z"]
        self.some = {"b", "a", "c", ("d", 1)}
        self.image = Image.new("L", (3, 3), 7)
        self.transforms = [Brighter(2), scaled, times(3), functools.partial(torch.add, other=4)]

    def __getitem__(self, index):
        x = torch.from_numpy(self.pixels[index]) + TABLE["a"][0]
        for transform in self.transforms:
            x = transform(x)
        return x, self.label(index)
"""
SHOW = """
import sys
from pathlib import Path

source = Path(sys.argv[1])
names = {"__name__": "__main__"}
exec(compile(source.read_text(), str(source), "exec"), names)
from flatout.pipeline.cache.disk.keys import key_of
key = key_of(names["Images"](sys.argv[2]), 64, "collate")
print(key.digest, key.reason)
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder as data sets have them."""
    folder = tmp_path / "data"
    for name in ("cat/1.png", "cat/2.png", "dog/1.png", "labels.csv"):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return folder


def made(source: str, root: object = "nowhere", file: str = "train.py"):
    names = {"__name__": "__main__"}
    exec(compile(source, file, "exec"), names)
    return names["Images"](root)


def encode(*things: object) -> str:
    key = key_of(*things)
    assert key.reason == ""
    assert len(key.digest) == 32
    return key.digest


@pytest.fixture(scope="module")
def plain() -> str:
    return encode(made(SOURCE))


# -- the same -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.full
def test_two_processes_with_other_hash_seeds_tell_the_same(root: Path, tmp_path: Path):
    script = tmp_path / "train.py"
    script.write_text(SOURCE)
    seen = [
        subprocess.run(
            [sys.executable, "-c", SHOW, str(script), str(root)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
        for seed in ("1", "2", "77")
    ]
    assert len(seen[0]) == 1
    assert seen == [seen[0]] * 3


def test_code_that_is_moved_or_commented_is_the_same(plain: str):
    assert encode(made("# a line more\n\n" + SOURCE, file="elsewhere/other.py")) == plain
    assert encode(made(SOURCE.replace("        x = torch", "        # as they are\n        x = torch"))) == plain


def test_what_the_data_set_does_not_read_is_not_told(plain: str):
    assert encode(made(SOURCE.replace("UNUSED = 1", "UNUSED = open"))) == plain
    assert encode(made(SOURCE + "\n\ndef train(rate):\n    return rate\n")) == plain


def test_files_that_stay_as_they_are_give_the_same(root: Path):
    before = encode(made(SOURCE, str(root)))
    (root / "labels.csv").read_text()
    os.utime(root)  # a folder's own times say nothing of its files
    assert encode(made(SOURCE, str(root))) == before


def test_copies_of_an_object_are_the_same(plain: str):
    import copy

    assert encode(copy.deepcopy(made(SOURCE))) == plain


# -- another --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Brighter(2)", "Brighter(3)"),
        ("Brighter(2)", "Brighter(2.0)"),
        ('kind="add"', 'kind="sum"'),
        ('"sum", "plus"', '"sum", "minus"'),
        ("lambda x: x * factor", "lambda x: x + factor"),
        ("times(3)", "times(4)"),
        ("MEAN = 0.5", "MEAN = 0.25"),
        ("MEAN = 0.5", "MEAN = -0.0"),
        ('{"a": [1, 2]', '{"a": [1, 3]'),
        ("math.pi", "math.e"),
        ("math.pi", "3"),
        ("* 1.0", "* 2.0"),
        ("index % 7", "index % 8"),
        ("SIZE = 28", "SIZE = 32"),
        ('"x", "y", "z"', '"x", "z", "y"'),
        ('("d", 1)', '("d", 2)'),
        ("(3, 3), 7", "(3, 3), 8"),
        ("torch.add, other=4", "torch.add, other=5"),
        ("torch.add", "torch.mul"),
        ("torch.arange(10)", "torch.arange(10).float()"),
        ("torch.arange(10)", "torch.arange(10).int()"),
        ("dtype=np.uint8", "dtype=np.int8"),
        ("@noted\n", ""),
        ("self.label(index)", "index"),
        ("Brighter(2), scaled", "scaled, Brighter(2)"),
    ],
)
def test_a_change_of_anything_the_samples_depend_on_is_told(plain: str, old: str, new: str):
    changed = SOURCE.replace(old, new)
    assert changed != SOURCE
    assert encode(made(changed)) != plain


@given(index=st.integers(0, 7839), bit=st.integers(0, 7))
def test_one_bit_of_one_pixel_is_told(plain: str, index: int, bit: int):
    dataset = made(SOURCE)
    dataset.pixels.reshape(-1)[index] ^= 1 << bit
    assert encode(dataset) != plain


def test_one_bit_of_a_large_tensor_is_told():
    tensor = torch.zeros(20_000_000, dtype=torch.uint8)
    seen = {encode(tensor)}
    for index in (0, 8 * 1024 * 1024 - 1, 8 * 1024 * 1024, 19_999_999):
        tensor[index] = 1
        seen.add(encode(tensor))
    assert len(seen) == 5


def change_content(root: Path) -> None:
    (root / "cat/1.png").write_text("cat/x.png")


def change_content_and_set_the_time_back(root: Path) -> None:
    before = (root / "cat/1.png").stat()
    change_content(root)
    os.utime(root / "cat/1.png", ns=(before.st_atime_ns, before.st_mtime_ns))


def add(root: Path) -> None:
    (root / "dog/2.png").write_text("")


def remove(root: Path) -> None:
    (root / "dog/1.png").unlink()


def rename(root: Path) -> None:
    (root / "dog").rename(root / "wolf")


def put_another_in_its_place(root: Path) -> None:
    (root / "new").write_text("dog/1.png")
    (root / "new").rename(root / "dog/1.png")


@pytest.mark.parametrize(
    "change", [change_content, change_content_and_set_the_time_back, add, remove, rename, put_another_in_its_place]
)
@pytest.mark.parametrize("kind", [str, Path])
def test_a_change_of_any_file_below_a_folder_is_told(root: Path, change, kind):
    before = encode(made(SOURCE, kind(root)))
    change(root)
    assert encode(made(SOURCE, kind(root))) != before


def test_files_are_found_in_lists_arrays_constants_and_behind_links(root: Path, tmp_path: Path):
    image = root / "cat/1.png"
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked/below").symlink_to(root)
    (root / "up").symlink_to(root)  # a circle
    (root / "cat/broken").symlink_to("nowhere")
    function: dict = {}
    exec(f"def read():\n    return open({str(image)!r})", function)
    things = [
        [str(image)],
        [(str(image), 1), (str(image), 2)],
        {"path": str(image)},
        np.array([str(image)]),
        np.array([str(image), None], dtype=object),
        str(tmp_path / "linked"),
        str(root / "cat/%d.png"),
        f"{root}/cat/",
        function["read"],
        functools.partial(open, str(image)),
    ]
    before = [encode(thing) for thing in things]
    change_content(root)
    after = [encode(thing) for thing in things]
    assert not set(before) & set(after)


def test_a_file_written_twice_in_one_tick_of_the_clock_is_told(tmp_path: Path):
    path = tmp_path / "a"
    for _ in range(10):
        path.write_text("1")
        before = encode(path)
        path.write_text("2")
        assert encode(path) != before


def test_a_mapped_array_is_told_by_its_file_and_place(tmp_path: Path):
    path = tmp_path / "array"
    path.write_bytes(bytes(4000))
    mapped = np.memmap(path, mode="r", dtype=np.uint8)
    seen = [encode(mapped), encode(mapped[1:]), encode(mapped[2:]), encode(mapped[2:][:5]), encode(mapped[1:][1:][:5])]
    assert len(set(seen)) == 4
    assert seen[3] == seen[4]
    path.write_bytes(bytes(3999) + b"x")
    assert encode(np.memmap(path, mode="r", dtype=np.uint8)) not in seen


@pytest.mark.parametrize("name", ["torch", "torchvision", "PIL", "numpy"])
def test_another_version_of_a_library_is_told(plain: str, name: str, monkeypatch: pytest.MonkeyPatch):
    module = sys.modules.get(name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(module, "__version__", "0.0", raising=False)
    assert encode(made(SOURCE)) != plain


def test_settings_of_the_process_are_told(plain: str):
    torch.set_default_dtype(torch.float64)
    try:
        assert encode(made(SOURCE)) != plain
    finally:
        torch.set_default_dtype(torch.float32)


def test_a_package_that_is_installed_is_told_by_its_version_and_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    package = tmp_path / "site-packages" / "flips"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("__version__ = '1.0'\ndef flip(x):\n    return x\n")
    monkeypatch.syspath_prepend(package.parent)
    monkeypatch.delitem(sys.modules, "flips", raising=False)
    module = importlib.import_module("flips")
    before = encode(module.flip)
    exec("def flip(x):\n    return -x", vars(module))  # not looked at: the version stands for it
    assert encode(module.flip) == before
    module.__version__ = "2.0"
    other = encode(module.flip)
    module.__version__ = "1.0"
    (package / "__init__.py").write_text("__version__ = '1.0'\ndef flip(x):\n    return x[::-1]\n")
    assert len({before, other, encode(module.flip)}) == 3


def test_a_script_is_the_users_own_whatever_it_is_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert owner_of("statistics") == "python"
    assert owner_of("__main__") == owner_of("__mp_main__") == owner_of("train.data") == ""
    shadowing = types.ModuleType("statistics")
    shadowing.__file__ = str(tmp_path / "statistics.py")
    monkeypatch.setitem(sys.modules, "statistics", shadowing)
    assert owner_of("statistics") == ""


def test_what_a_module_of_the_users_own_holds_is_told_where_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "settings.py").write_text("SIZE = 3\nRATE = 0.1\ndef grow(x):\n    return x + 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "settings", raising=False)
    settings = importlib.import_module("settings")
    source = "import settings\n\ndef resize(x):\n    return settings.grow(x) * settings.SIZE\n"
    late = "def resize(x):\n    from settings import grow, SIZE\n    return grow(x) * SIZE\n"
    for text in (source, late):
        names: dict = {"__name__": "train"}
        exec(text, names)
        before = encode(names["resize"])
        settings.RATE = 0.2
        assert encode(names["resize"]) == before
        settings.SIZE = 4
        assert encode(names["resize"]) != before
        settings.SIZE = 3
        plainly, settings.grow = settings.grow, lambda x: x + 2
        assert encode(names["resize"]) != before
        settings.grow = plainly
    before = encode(settings)
    settings.RATE = 0.3
    assert encode(settings) != before


def test_a_module_that_is_only_imported_when_it_runs_is_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "comes_later.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    names: dict = {"__name__": "train"}
    exec("def f(x):\n    import comes_later\n    import os\n    import numpy\n    return comes_later.g(x)\n", names)
    assert key_of(names["f"]) == Key("", "function: f imports comes_later when it runs, which is not there yet")


# -- every kind of thing --------------------------------------------------------------------------------------------


class Colour(enum.Enum):
    RED = 1
    BLUE = "b"


@dataclasses.dataclass
class Settings:
    size: int = 3
    more: list = dataclasses.field(default_factory=list)


class Slotted:
    __slots__ = ("a", "b")

    def __init__(self, a: object) -> None:
        self.a = a


class Numbers(list):
    pass


Point = collections.namedtuple("Point", "x y")


def things() -> list[object]:
    structured = np.zeros(2, dtype=[("a", "i4"), ("b", "f8")])
    texts = ["", "1", "\udc80", b"", b"1", bytearray(b"1"), io.BytesIO(b"a"), re.compile("a"), re.compile("b")]
    numbers = [None, True, False, 0, 1, -1, 2**70, 0.0, -0.0, 1.0, float("nan"), float("inf"), 1j, ...]
    lists = [[1], [[1]], [True], [1.0], [None], ["1"], [b"1"], ["1", 1], [1, "1"], ["ab", "c"], ["a", "bc"], ["abc"]]
    holders = [(), [], {}, set(), frozenset([1]), (1,), {1, 2}, range(3), range(4), slice(1, 2), slice(1, 3)]
    dicts = [{"a": 1}, {"a": 2}, {1: "a"}, {"a": 1, "b": 2}, {"b": 2, "a": 1}, types.MappingProxyType({"a": 1})]
    dicts += [collections.OrderedDict(a=1), collections.defaultdict(list, a=[1]), collections.defaultdict(set, a=[1])]
    others = [collections.deque([1]), collections.deque([1], 3), collections.Counter("aab"), re.compile("a", re.I)]
    others += [Settings(), Settings(4), Settings(more=[1]), Slotted(1), Slotted(2), Point(1, 2), Numbers([1])]
    others += [Point(2, 1), Colour.RED, Colour.BLUE, Colour, types.SimpleNamespace(a=1), int, str, list[int], int | str]
    calls = [len, max, [].append, [1].append, "a".upper, "b".upper, str.upper, str.lower, math_of(1), math_of(2)]
    calls += [functools.partial(max, 1), functools.partial(max, 2), functools.lru_cache(things), np.sin, np.cos]
    tensors = [torch.ones(2), torch.ones(2, 1), torch.ones(2, dtype=torch.int32), torch.ones(0), torch.ones(0, 2)]
    tensors += [torch.ones(4, 4).t()[:2], torch.nn.Parameter(torch.ones(2)), torch.zeros(2), -torch.zeros(2)]
    tensors += [torch.float32, torch.float64, torch.device("cpu"), torch.Size([1]), torch.channels_last]
    modules = [torch.nn.Identity(), torch.nn.Linear(1, 1), torch.nn.Linear(1, 1).eval(), torch.nn.Dropout(0.1)]
    arrays = [np.ones(2), np.ones(2, "f4"), np.ones((2, 1)), np.float32(1), np.float64(1), np.array(1.0), np.zeros(0)]
    arrays += [np.array(["a"]), np.array([None, 1], dtype=object), structured, np.array(["2020-01-01"], "M8[D]")]
    arrays += [np.ma.array([1, 2], mask=[0, 1]), np.ma.array([1, 2], mask=[0, 0]), np.dtype("f4")]
    images = [Image.new("L", (2, 2), 1), Image.new("L", (2, 2), 2), Image.new("RGB", (2, 2)), Image.new("P", (2, 2))]
    return [*texts, *numbers, *lists, *holders, *dicts, *others, *calls, *tensors, *modules, *arrays, *images]


def math_of(number: int):
    def inner(x: int) -> int:
        return x + number

    return inner


def test_things_that_differ_are_told_apart_and_things_that_are_equal_are_not():
    torch.manual_seed(0)
    first = [encode(thing) for thing in things()]
    torch.manual_seed(0)
    again = [encode(thing) for thing in things()]
    assert first == again
    twice = [things()[place] for place, seen in enumerate(first) if first.count(seen) > 1]
    assert twice == []


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=10,
)


@given(one=JSON, other=JSON)
def test_plain_values_are_told_apart_exactly_where_they_are_written_differently(one: object, other: object):
    assert (encode(one) == encode(other)) == (repr(one) == repr(other))


def test_one_thing_twice_is_told_as_two_equal_things():
    inner = Slotted([1])
    assert encode([inner, inner]) == encode([Slotted([1]), Slotted([1])])


def test_circles_are_told():
    one: list = [1]
    one.append(one)
    other: list = [2]
    other.append(other)
    holder = types.SimpleNamespace()
    holder.me = holder
    assert len({encode(one), encode(other), encode(holder)}) == 3


def test_the_order_in_which_attributes_were_set_is_not_told():
    one, other = types.SimpleNamespace(a=1, b=2), types.SimpleNamespace(b=2, a=1)
    assert encode(one) == encode(other)


# -- reasons --------------------------------------------------------------------------------------------------------


class Holder:
    def __init__(self, thing: object) -> None:
        self.thing = thing


class Hostile:
    def __reduce_ex__(self, protocol: int):
        raise RuntimeError("no")

    def __getattr__(self, name: str):
        raise RuntimeError("no")


REFUSED = {
    "a lock": lambda: threading.Lock(),
    "an iterator": lambda: iter([1]),
    "a generator": lambda: (x for x in "ab"),
    "a stream of random numbers": lambda: random.Random(0),
    "one of torch": lambda: torch.Generator(),
    "one of numpy": lambda: np.random.default_rng(0),
    "one of numpy, old": lambda: np.random.RandomState(0),
    "a view of memory": lambda: memoryview(b"a"),
    "local to a thread": lambda: threading.local(),
    "sparse": lambda: torch.eye(2).to_sparse(),
    "meta": lambda: torch.ones(2, device="meta"),
    "a remote file": lambda: "s3://bucket/name",
    "a remote folder": lambda: ["https://host/folder"],
    "a device": lambda: "/dev/zero",
}


@pytest.mark.parametrize("name", list(REFUSED))
def test_what_cannot_be_told_is_a_reason_that_names_it(name: str):
    key = key_of(Holder(REFUSED[name]()))
    assert key.digest == ""
    assert key.reason.startswith("Holder.thing: ")


def test_an_open_file_is_a_reason_wherever_it_is(tmp_path: Path):
    with (tmp_path / "a").open("w") as file:
        places = [[file], {"a": file}, Holder(file), functools.partial(print, file=file), lambda: file, Slotted(file)]
        assert {bool(key_of(place).reason) for place in places} == {True}
        assert "an open file (TextIOWrapper)" in key_of(Holder([{"deep": file}])).reason
        names: dict = {"log": file, "__name__": "train"}
        exec("def f(x):\n    print(x, file=log)\n    return x", names)
        assert "log: an open file" in key_of(names["f"]).reason


def test_an_image_that_is_still_to_be_read_is_told_by_its_file(tmp_path: Path):
    Image.new("L", (2, 2), 1).save(tmp_path / "a.png")
    with Image.open(tmp_path / "a.png") as image:
        before = encode(image)
        assert image.fp is not None  # looking has not read it
    Image.new("L", (2, 2), 2).save(tmp_path / "a.png")
    with Image.open(tmp_path / "a.png") as image:
        assert encode(image) != before
    with Image.open(io.BytesIO((tmp_path / "a.png").read_bytes())) as image:
        assert key_of(image).digest == ""


def test_objects_that_defend_themselves_are_no_error():
    assert isinstance(key_of(Hostile()), Key)
    deep: list = []
    for _ in range(5000):
        deep = [deep]
    assert key_of(deep) == Key("", "it is nested too deeply")


def test_more_than_the_limits_is_a_reason(root: Path):
    assert "more than 3 files" in key_of(str(root), limits=KeyLimits(files=3)).reason
    assert "more than 7 bytes" in key_of(torch.ones(2), limits=KeyLimits(num_bytes=7)).reason
    assert "in 0 s" in key_of([[number] for number in range(1000)], limits=KeyLimits(seconds=0.0)).reason
    assert key_of(str(root), torch.ones(2), limits=KeyLimits(files=10, num_bytes=8)).reason == ""


def test_a_folder_that_cannot_be_read_is_a_reason():
    root = Path(tempfile.mkdtemp())
    (root / "cat").mkdir(mode=0)
    root.chmod(0o755)

    def work() -> None:
        if os.geteuid() == 0:
            os.setuid(65534)
        assert key_of(str(root)).reason == f"str: {root / 'cat'} cannot be read (Permission denied)"

    child = multiprocessing.get_context("fork").Process(target=work)
    child.start()
    child.join(60)
    shutil.rmtree(root)
    assert child.exitcode == 0


def test_nothing_of_the_data_set_is_called_or_changed():
    class Counting(torch.utils.data.Dataset):
        def __init__(self) -> None:
            self.calls = 0

        def __getitem__(self, index: int) -> int:
            self.calls += 1
            return index

        def __len__(self) -> int:
            self.calls += 1
            return 3

        def __eq__(self, other: object) -> bool:
            raise AssertionError

        __hash__ = None

    dataset = Counting()
    states = (random.getstate(), torch.get_rng_state().tolist())
    assert encode(dataset) == encode(dataset)
    assert dataset.calls == 0
    assert states == (random.getstate(), torch.get_rng_state().tolist())


def test_pipelines_of_torchvision_are_told():
    from tests.torchvision_stub import torchvision

    transforms = torchvision.transforms
    v2 = importlib.import_module("torchvision.transforms.v2")

    def pipeline(size: int = 224, mean: float = 0.5, ratio: float = 1.0):
        return transforms.Compose(
            [
                transforms.Resize(size),
                transforms.RandomResizedCrop(32, ratio=(ratio, 2.0)),
                transforms.ToTensor(),
                transforms.Normalize((mean,), (0.5,)),
                v2.RandomHorizontalFlip(0.5),
                v2.ToDtype(torch.float32, scale=True),
            ]
        )

    seen = [encode(one) for one in (pipeline(), pipeline(32), pipeline(mean=0.4), pipeline(ratio=0.5))]
    assert len(set(seen)) == 4
    assert encode(pipeline()) == seen[0]
    assert encode(torchvision.datasets.FakeData(3)) != encode(torchvision.datasets.FakeData(4))


def test_the_files_of_a_folder_that_goes_away_meanwhile_are_no_error(root: Path):
    gone = str(root)
    shutil.rmtree(root)
    assert encode(gone) != encode(gone + "x")
