"""Loops inside of functions that cannot be compiled as a whole: asked for at their place, else run as they stand.

Modules: flatout.numeric.functions.
"""

import inspect
import pickle
import traceback

import numpy as np
import pytest
from tests.unit.numeric.served_code import at_once, loaded, num_served, outcome, same

pytest.importorskip("numba")
pytestmark = pytest.mark.slow

SAMPLES = """
import flatout
import numpy as np
import torch

GAIN = 3

class Pictures:
    def __init__(self, n):
        self.images = np.arange(n * 48, dtype=np.uint8).reshape(n, 6, 8)
        self.offset = 2

    @flatout.compiled
    def __getitem__(self, index):
        image = self.images[index]
        name = f"picture {index}"
        out = np.zeros(image.shape, dtype=np.int64)
        for y in range(image.shape[0]):
            for x in range(image.shape[1]):
                value = int(image[y, x])
                out[y, x] = value * GAIN + self.offset
        return torch.from_numpy(out), name
"""


@pytest.fixture(autouse=True)
def told(monkeypatch):
    return at_once(monkeypatch)


def test_a_pixel_loop_of_a_sample_is_served(tmp_path, told):
    module = loaded(tmp_path, SAMPLES)
    pictures = module.Pictures(4)
    plain = module.Pictures.__getitem__.__wrapped__
    for _ in range(4):
        for index in range(4):
            mine, theirs = pictures[index], plain(pictures, index)
            assert mine[0].equal(theirs[0]) and mine[1] == theirs[1]
    assert told.used and num_served() >= 8
    module.GAIN = 2.5
    assert pictures[1][0].equal(plain(pictures, 1)[0])


def test_an_error_is_that_of_the_line_in_the_file(tmp_path):
    module = loaded(tmp_path, SAMPLES.replace("out[y, x] = value", "out[y, x + (value > 150)] = value"))
    pictures = module.Pictures(4)
    for _ in range(9):
        pictures[0]
    assert num_served() > 0
    with pytest.raises(IndexError, match="out of bounds") as caught:
        pictures[3]
    last = traceback.extract_tb(caught.value.__traceback__)[-1]
    assert (last.filename, last.line) == (module.__file__, "out[y, x + (value > 150)] = value * GAIN + self.offset")
    assert last.name == "__getitem__"
    made, plain = module.Pictures.__getitem__, module.Pictures.__getitem__.__wrapped__
    assert made.__code__.co_firstlineno == plain.__code__.co_firstlineno
    assert inspect.getsource(made) == inspect.getsource(plain)
    assert inspect.signature(made) == inspect.signature(plain)


@pytest.mark.parametrize(
    ("body", "calls"),
    [
        ("total = 0.0\n    for v in k:\n        total += v\n    return str(total)", [([1.0, 2.0],), ([],)]),
        ("for i in range(len(k)):\n        last = k[i] * 2\n    return str(last)", [([1.0, 2.0],), ([],)]),
        ("i = 7\n    for i in range(len(k)):\n        pass\n    return str(i)", [([1.0, 2.0],), ([],)]),
        ("best = None\n    for v in k:\n        best = v\n    return str(best)", [([1, 2],), ([],)]),
        (
            "best = None\n    for v in k:\n        if v > 1:\n            best = v\n    return str(best)",
            [([1, 2],), ([0],)],
        ),
        ("n = 0\n    while n < len(k):\n        n += 1\n    return str(n)", [([1, 2],), ([],)]),
        (
            "t = 0\n    for v in k:\n        if v < 0:\n            break\n        t += v\n    return str((t, v))",
            [([1, -2],), ([3],)],
        ),
        (
            "out = {}\n    for n in range(3):\n        t = 0\n"
            "        for v in k:\n            t = t * n + v\n        out[n] = t\n"
            "    return out",
            [([1, 2, 3],)],
        ),
        (
            "out, t = {}, 1\n    for n in range(3):\n        for v in k:\n"
            "            t = t + v\n        out[n] = t\n    return out",
            [([1, 2, 3],), ([],)],
        ),
        (
            "out = {}\n    try:\n        for v in range(len(k)):\n"
            "            k[v] = 1 / (v - 2)\n    except ZeroDivisionError as e:\n"
            "        out[0] = str(e)\n    return out, v",
            [(np.zeros(2),), (np.zeros(4),)],
        ),
        (
            "t = sum(k)\n    for y in range(2):\n        t += y\n"
            "    for y in range(3):\n        t -= y\n    return str(t)",
            [([1, 2],)],
        ),
    ],
)
def test_what_a_loop_leaves_in_its_variables_is_what_python_leaves(body, calls, tmp_path, told):
    text = f"import numpy as np\nimport flatout\n@flatout.compiled\ndef f(k):\n    {body}\n"
    function = loaded(tmp_path, text).f
    for _ in range(9):
        for arguments in calls:
            mine, theirs = outcome(function, arguments), outcome(function.__wrapped__, arguments)
            assert same(*[(repr(one[0]), one[1], one[2]) for one in (mine, theirs)])
    assert told.differing == []


def test_a_generator_and_a_nested_function_are_served_in_their_loops(tmp_path, told):
    text = """
import flatout
def outer(scale):
    @flatout.compiled
    def inner(n):
        for start in map(int, "123"):
            total = 0
            for i in range(n):
                total += i * scale
            yield total + start
    return inner
"""
    inner = loaded(tmp_path, text).outer(3)
    assert inspect.isgeneratorfunction(inner)
    for _ in range(5):
        assert list(inner(4)) == [19, 20, 21]
    assert num_served() > 0


@pytest.mark.parametrize(
    "body",
    [
        "x = 1\n    for i in range(k):\n        x += i\n    return locals()",
        "for i in range(k):\n        k += i\n    return eval('k')",
        "global z\n    z = {}\n    for i in range(k):\n        k += i\n    return k",
    ],
)
def test_a_function_that_sees_its_frame_in_another_way_stays_as_it_is(body, tmp_path, told):
    module = loaded(tmp_path, f"import flatout\n@flatout.compiled\ndef f(k):\n    {body}\n")
    assert not hasattr(module.f, "__wrapped__")
    assert told.left == ["nothing in it has a compiled form"]


def test_a_compiled_function_is_pickled_by_its_name_and_inherits_as_others_do(tmp_path):
    module = loaded(
        tmp_path,
        SAMPLES + "\nclass More(Pictures):\n    @flatout.compiled\n    def __getitem__(self, index):\n"
        "        out, name = super().__getitem__(index)\n        return out + 1, name\n",
    )
    assert pickle.loads(pickle.dumps(module.Pictures.__getitem__)) is module.Pictures.__getitem__
    assert module.More(2)[1][0].equal(module.Pictures(2)[1][0] + 1)


def test_a_file_that_has_changed_since_it_was_imported_is_not_read(tmp_path, told):
    text = "import flatout\ndef f(k):\n    t = 0\n    for i in range(k):\n        t += i\n    return t\n"
    module = loaded(tmp_path, text)
    (tmp_path / "script.py").write_text(text.replace("t += i", "t -= i"))
    import flatout

    assert flatout.compiled(module.f) is module.f
    assert told.left == ["its source cannot be read"]
