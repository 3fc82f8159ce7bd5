"""Functions and loops under `@flatout.compiled` give what Python gives, whatever they are called with.

Modules: flatout.numeric.hot_code, flatout.numeric.translation, flatout.numeric.expressions, flatout.numeric.calls,
flatout.numeric.forms, flatout.numeric.scope, flatout.numeric.decorator, flatout.numeric.known_functions,
flatout.numeric.definition, flatout.numeric.results, flatout.numeric.surroundings.
"""

import math

import numpy as np
import pytest
from tests.unit.numeric.served_code import agree, at_once, loaded, num_served, outcome, same, states

from flatout.numeric import functions, hot_code

pytest.importorskip("numba")
pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def told(monkeypatch):
    return at_once(monkeypatch)


EDIT_DISTANCE = """
def f(ref, hyp):
    row = list(range(len(hyp) + 1))
    for i, r in enumerate(ref, 1):
        previous, row[0] = row[0], i
        for j, h in enumerate(hyp, 1):
            current = row[j]
            row[j] = min(row[j] + 1, row[j - 1] + 1, previous + (r != h))
            previous = current
    return row[-1]
"""
BLUR = """
def f(image, out):
    height, width = image.shape
    for y in range(1, height - 1):
        for x in range(1, width - 1):
            total = 0.0
            for dy in range(-1, 2):
                for dx in range(-1, 2):
                    total += float(image[y + dy, x + dx])
            out[y, x] = total / 9
"""
WARP = """
def f(a, b):
    n, m = len(a), len(b)
    cost = np.full((n + 1, m + 1), np.inf, dtype=np.float64)
    cost[0, 0] = 0.0
    for i in range(1, n + 1):
        for j in range(1, m + 1):
            cost[i, j] = abs(a[i - 1] - b[j - 1]) + min(cost[i - 1, j], cost[i, j - 1], cost[i - 1, j - 1])
    return cost[n, m]
"""
GRID = """
def f(rows, columns):
    table = [[0] * columns for _ in range(rows)]
    for i in range(rows):
        for j in range(columns):
            table[i][j] = i * j if i > j else i - j
            if i and j:
                table[i][j] += table[i - 1][j - 1] % 7 - table[i][j - 1] // 3
    return table[-1][-1], table[0][-1] / 3
"""
RUNS = """
def f(bits):
    runs, length = [], 0
    for at in range(len(bits)):
        if at and bits[at] != bits[at - 1]:
            runs.append(length)
            length = 0
        length += 1
    runs.append(length)
    return runs
"""
OVERLAPS = """
def f(boxes, scores, limit):
    alive = np.ones(len(scores), dtype=bool)
    keep = []
    for i in range(len(scores)):
        if not alive[i]:
            continue
        keep.append(i)
        for j in range(i + 1, len(scores)):
            w = min(boxes[i, 2], boxes[j, 2]) - max(boxes[i, 0], boxes[j, 0])
            h = min(boxes[i, 3], boxes[j, 3]) - max(boxes[i, 1], boxes[j, 1])
            if w > 0 and h > 0 and w * h > limit:
                alive[j] = False
    return keep
"""
SMOOTH = """
def f(values, alpha):
    total = 0
    for v in values:
        total = alpha * v + (1 - alpha) * total
    return total
"""
LARGEST = """
def f(values):
    best, place = -math.inf, -1
    for at, v in enumerate(values):
        if v > best:
            best, place = v, at
    return best, place
"""
KERNEL = """
def f(size, sigma):
    out = np.zeros((size, size))
    for y in range(size):
        for x in range(size):
            out[y, x] = math.exp(-((y - size // 2) ** 2 + (x - size // 2) ** 2) / (2 * sigma * sigma))
    return out
"""
COLLATZ = """
def f(n):
    steps = 0
    while n != 1:
        n = 3 * n + 1 if n % 2 else n // 2
        steps += 1
    return steps
"""
random = np.random.default_rng(3)
BOXES = np.sort(random.random((30, 4)) * 20, axis=1)[:, [0, 1, 2, 3]]
ORDINARY = {
    "edit distance of numbers": (EDIT_DISTANCE, ([1, 2, 3, 4, 9], [1, 3, 4, 7]), ([5] * 9, [5, 6] * 3)),
    "edit distance of texts": (EDIT_DISTANCE, ("kitten", "sitting"), ("h\u00e4user", "mauser \U0001f600")),
    "blur of bytes": (BLUR, (random.integers(0, 255, (9, 11), dtype=np.uint8), np.zeros((9, 11)))),
    "blur into float32": (BLUR, (random.random((7, 7)), np.zeros((7, 7), dtype=np.float32))),
    "blur of a column-major part": (BLUR, (np.asfortranarray(random.random((7, 9)))[:, ::2], np.zeros((7, 5)))),
    "time warping": (WARP, (random.random(12), random.random(9)), (random.random(3).tolist(), random.random(5))),
    "time warping in float32": (WARP, (random.random(6).astype(np.float32), random.random(7).astype(np.float32))),
    "a table of lists": (GRID, (6, 8), (9, 3)),
    "lengths of runs": (RUNS, ([True, True, False],), (np.array([1, 1, 0, 0, 0, 1], dtype=np.int8),), ("aabccc",)),
    "boxes": (OVERLAPS, (BOXES, random.random(30), 0.5), (BOXES.astype(np.float32), random.random(30), 0.1)),
    "a sum that begins whole": (
        SMOOTH,
        ([0.25, 1.5, -2.0], 0.3),
        (np.array([1.0, 2.0]), 0.5),
        (random.random(40), 0.9),
    ),
    "the largest of several": (LARGEST, ([0.5, 2.5, 1.0],), (random.random(9),), ([math.nan, 1.0],)),
    "a bell": (KERNEL, (5, 1.2), (6, 2)),
    "steps of a sequence": (COLLATZ, (27,), (97,)),
}


@pytest.mark.parametrize("name", ORDINARY)
def test_a_function_is_served_and_gives_the_same(name, tmp_path, told):
    text, *calls = ORDINARY[name]
    assert agree(tmp_path, text, *calls)
    assert told.used == ["f"] * len({*map(id, states())}), told.left
    assert num_served() >= 3 * len(calls)


# -- what compiled code cannot give --------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "usual", "odd"),
    [
        ("def f(n, k):\n    for _ in range(n):\n        k = k * k\n    return k\n", (2, 3), (7, 3)),
        ("def f(n, k):\n    for _ in range(n):\n        k = k + k\n    return k\n", (5, 3), (80, 3)),
        ("def f(n, k):\n    for _ in range(n):\n        k = -k - k - k\n    return k\n", (5, 3), (70, 3)),
        ("def f(n, k):\n    for _ in range(n):\n        k = k << 3\n    return k\n", (5, 3), (40, 3)),
        ("def f(n, k):\n    t = 0\n    for i in range(n):\n        t += k // (i - 3)\n    return t\n", (2, 9), (5, 9)),
        ("def f(n, k):\n    t = 0\n    for i in range(n):\n        t += k % (i - 3)\n    return t\n", (2, 9), (5, 9)),
        ("def f(n, k):\n    t = 0.5\n    for i in range(n):\n        t += k / (i - 3)\n    return t\n", (2, 9), (5, 9)),
        ("def f(n, k):\n    t = 0.5\n    for i in range(n):\n"
         "        t += k[i]\n    return t\n", (2, [1.0, 2.0]), (9, [1.0])),
        ("def f(n, k):\n    for i in range(n):\n        k[i] = i\n", (2, np.zeros(3)), (9, np.zeros(3))),
        ("def f(n, k):\n    for i in range(n):\n"
         "        k[i] += 100\n", (1, np.zeros(3, np.int8)), (3, np.full(3, 90, np.int8))),
        ("def f(n, k):\n    t = 0\n    for i in range(n):\n"
         "        t = int(k * 10.0**i)\n    return t\n", (3, 1.5), (40, 1.5)),
        ("def f(n, k):\n    for i in range(n):\n        if i > k:\n"
         "            raise ValueError(f'{i} of {n}')\n", (2, 9), (9, 2)),
        ("def f(n, k):\n    for i in range(n):\n        assert i < k, 'too many'\n    return n\n", (2, 9), (9, 2)),
        ("def f(n, k):\n    t = 0.0\n    for i in range(n):\n"
         "        t += math.log(k - i)\n    return t\n", (2, 9), (12, 9)),
        ("def f(n, k):\n    t = 0.0\n    for i in range(n):\n"
         "        t += math.sqrt(k - i)\n    return t\n", (2, 9), (12, 9)),
        ("def f(n, k):\n    t = 0\n    for i in range(0, 10, n):\n        t += k\n    return t\n", (2, 9), (0, 9)),
    ],
)  # fmt: skip
def test_what_leaves_the_machine_s_numbers_is_python_s_own_errors_and_all(text, usual, odd, tmp_path, told):
    assert agree(tmp_path, text, usual, odd)
    assert num_served() > 0, told.left
    assert told.differing == []


def test_what_was_written_before_an_error_is_what_python_has_written_before_it(tmp_path):
    text = "def f(k, n):\n    for i in range(n):\n        k[i] = k[i] * 2 + i\n"
    assert agree(tmp_path, text, (np.arange(4.0), 3), (np.arange(4.0), 6))
    assert num_served() > 0


@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_a_warning_of_numpy_is_still_given(kind, tmp_path):
    text = (
        "import flatout\n@flatout.compiled\ndef f(k, n):\n"
        "    for i in range(n):\n        k[0] = k[0] * k[1]\n    return k[0]\n"
    )
    function = loaded(tmp_path, text).f
    values = np.array([2, 1e20], dtype=kind)
    for _ in range(8):
        function(values.copy(), 1)
    assert num_served() > 0
    with pytest.warns(RuntimeWarning, match="overflow"):
        assert function(values.copy(), 40) == np.inf


def test_infinities_that_are_there_already_are_no_reason_to_leave_it_to_python(tmp_path):
    text = "def f(k):\n    t = k[0]\n    for i in range(1, len(k)):\n        t = t + k[i]\n    return t\n"
    assert agree(tmp_path, text, (np.array([np.inf, 1.0, 2.0]),), (np.array([np.nan, 1.0, 2.0]),))
    assert num_served() >= 6


# -- types -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "text",
    [
        "def f(k):\n    t = 0\n    for i in range(len(k)):\n        t = t + k[i]\n    return t\n",
        "def f(k):\n    t = True\n    for i in range(len(k)):\n        t = k[i] > 1\n    return t\n",
        "def f(k):\n    t = 1\n    for i in range(len(k)):\n        t = k[i] / 2\n    return t\n",
        "def f(k):\n    t = k[0]\n    for i in range(len(k)):\n        t = max(t, k[i])\n    return t, len(k), t > 0\n",
        "def f(k):\n    t = 2.5\n    for i in range(len(k)):\n        t = min(t, k[i])\n    return t\n",
        "def f(k):\n    t = 0\n    for i in range(len(k)):\n        t = abs(-k[i]) - 1\n    return t\n",
        "def f(k):\n    t = 0\n    for i in range(len(k)):\n"
        "        t = int(k[i]) + float(k[i]) + bool(k[i])\n    return t\n",
        "def f(k):\n    t = 0\n    for i in range(len(k)):\n        t = k[i].item()\n    return t\n",
    ],
)
@pytest.mark.parametrize("dtype", ["u1", "i2", "i8", "f4", "f8"])
@pytest.mark.few(12)
def test_a_number_is_of_python_s_own_type(text, dtype, tmp_path):
    assert agree(tmp_path, text, (np.array([1, 3, 2], dtype=dtype),), (np.array([0, 0], dtype=dtype),))


def test_each_combination_of_types_is_proven_by_itself(tmp_path, told):
    text = "def f(k, n):\n    t = k\n    for i in range(n):\n        t = t + k\n    return t\n"
    assert agree(tmp_path, text, (1, 3), (1.5, 3), (np.float32(1.5), 3), (True, 3))
    assert len(states()) == 4
    assert all(state.proven >= hot_code.FIRST_PROVEN or state.left for state in states())


def test_a_large_whole_number_is_compared_exactly(tmp_path):
    text = "def f(k, x):\n    t = 0\n    for i in range(3):\n        t += k + i > x\n    return t\n"
    assert agree(tmp_path, text, (5, 5.5), (2**53 + 1, float(2**53)), (2**62, 2.0**62))


@pytest.mark.parametrize(
    "fill", ["np.zeros(n)", "np.ones((n, 2), dtype=np.float32)", "np.full((n,), 7, dtype=np.int16)"]
)
def test_an_array_that_is_made_and_returned_is_numpy_s_own(fill, tmp_path):
    text = f"def f(n):\n    out = {fill}\n    for i in range(n):\n        out[i] = i\n    return out\n"
    assert agree(tmp_path, text, (4,), (6,))
    function = loaded(tmp_path, f"import flatout\nimport numpy as np\n@flatout.compiled\n{text}", "again").f
    for _ in range(8):
        assert function(3).flags.owndata


def test_an_array_that_is_given_and_returned_is_the_same_object(tmp_path):
    module = loaded(
        tmp_path,
        "import flatout\n@flatout.compiled\ndef f(k):\n    for i in range(len(k)):\n        k[i] = i\n    return k\n",
    )
    values = np.zeros(4)
    assert all(module.f(values) is values for _ in range(9))
    assert num_served() > 0


# -- what a function reads besides ---------------------------------------------------------------------------------
def test_what_stands_in_the_module_is_read_at_each_call(tmp_path):
    module = loaded(
        tmp_path,
        "import flatout\nSIZE = 3\n@flatout.compiled\ndef f(k):\n"
        "    for i in range(k):\n        k = k + SIZE\n    return k\n",
    )
    for size in (3, 3, 3, 3, 3, 3, 3, 5, 2.5, "x"):
        module.SIZE = size
        assert same(outcome(module.f, (4,)), outcome(module.f.__wrapped__, (4,)))
    assert num_served() > 0


def test_a_name_that_comes_to_hide_a_function_of_python_s_is_seen(tmp_path):
    module = loaded(
        tmp_path,
        "import flatout\n@flatout.compiled\ndef f(k):\n    t = 0\n"
        "    for i in range(3):\n        t += max(k, i)\n    return t\n",
    )
    assert [module.f(1) for _ in range(9)] == [4] * 9
    module.max = lambda *numbers: 100
    assert module.f(1) == 300


def test_a_closure_s_variable_is_read_at_each_call(tmp_path):
    text = """
import flatout
def make():
    scale = 2
    @flatout.compiled
    def f(k):
        t = 0
        for i in range(3):
            t += k * scale
        return t
    def change(value):
        nonlocal scale
        scale = value
    return f, change
"""
    function, change = loaded(tmp_path, text).make()
    assert [function(1) for _ in range(9)] == [6] * 9
    change(0.5)
    assert same((function(1), None, ()), (1.5, None, ()))


def test_a_method_reads_its_object_unless_reading_may_do_something(tmp_path):
    text = """
import flatout
class Plain:
    step = 2
    def __init__(self):
        self.scale = 3
    @flatout.compiled
    def f(self, k):
        t = 0
        for i in range(k):
            t += self.scale * self.step
        return t
class Counting(Plain):
    reads = 0
    @property
    def scale(self):
        Counting.reads += 1
        return 3
    @scale.setter
    def scale(self, value):
        pass
"""
    module = loaded(tmp_path, text)
    plain, counting = module.Plain(), module.Counting()
    assert [plain.f(4) for _ in range(9)] == [24] * 9
    assert num_served() > 0
    plain.scale = 1.5
    assert plain.f(4) == 12.0
    assert counting.f(4) == 24
    assert module.Counting.reads == 4


@pytest.mark.few(8)
@pytest.mark.parametrize(
    "body",
    [
        "print(k)", "k = sorted(k)", "k = random.random()", "global z\n        z = 1", "k = {i: 2}", "k = str(i)",
        "k = np.sum(k)", "k = k @ k", "k = [i, 2.0]", "k, *z = k", "k = lambda: 1", "del k", "k = f'{i}'",
        "k = yield", "with k: pass", "try: k = 1\n        except: pass", "import os", "k = __name__", "k.x = 1",
    ],
)  # fmt: skip
def test_what_has_no_compiled_form_runs_as_it_is(body, tmp_path, told):
    text = (
        f"import random\nimport numpy as np\nimport flatout\n"
        f"@flatout.compiled\ndef f(k):\n    for i in range(3):\n        {body}\n"
    )
    function = loaded(tmp_path, text).f
    plain = getattr(function, "__wrapped__", function)
    for _ in range(3):
        assert repr(outcome(lambda k: str(type(function(k))), (2,))) == repr(
            outcome(lambda k: str(type(plain(k))), (2,))
        )
    assert told.used == []


def test_a_wrong_number_of_arguments_is_python_s_own_error(tmp_path):
    function = loaded(tmp_path, f"import flatout\n@flatout.compiled\n{COLLATZ.lstrip()}").f
    for arguments, named in (((), {}), ((1, 2), {}), ((1,), {"n": 1}), ((), {"m": 1})):
        with pytest.raises(TypeError, match="f\\(\\)"):
            function(*arguments, **named)
    assert function(n=27) == 111


def test_a_function_keeps_its_name_its_doc_and_its_defaults(tmp_path):
    text = (
        'import flatout\n@flatout.compiled\ndef f(k, n=4):\n    """Add."""\n'
        "    for i in range(n):\n        k += i\n    return k\n"
    )
    function = loaded(tmp_path, text).f
    assert (function.__name__, function.__doc__, function.__wrapped__.__defaults__) == ("f", "Add.", (4,))
    assert [function(1) for _ in range(9)] == [7] * 9


def test_without_numba_it_is_the_function_itself(tmp_path, monkeypatch, told):
    monkeypatch.setattr(functions, "_has_numba", lambda: False)
    function = loaded(tmp_path, f"import flatout\n@flatout.compiled\n{COLLATZ.lstrip()}").f
    assert not hasattr(function, "__wrapped__")
    assert told.left == ["it needs numba: pip install flatout[numba]"]


TWICE = {
    "a name of another one": """
def f(values, n):
    best = np.zeros(n)
    last = best
    for i, v in enumerate(values):
        last[i % n] += v
    return best, last
""",
    "one name twice": """
def f(values, n):
    best = np.zeros(n)
    for i, v in enumerate(values):
        best[i % n] += v
    return best, best
""",
    "a part of the other": """
def f(values, n):
    best = np.zeros(n)
    for i, v in enumerate(values):
        best[i % n] += v
    return best, best[:2]
""",
    "one of two, as it comes": """
def f(values, n):
    one = np.zeros(n)
    other = np.zeros(n)
    for i, v in enumerate(values):
        one[i % n] += v
        if v > 0.9:
            other = one
    return one, other
""",
    "two lists that are one": """
def f(values, n):
    one = [0.0] * n
    other = one
    for i, v in enumerate(values):
        one[i % n] += v
    return one, other
""",
}
APART = """
def f(values, n):
    sums = np.zeros(n)
    counts = np.zeros(n)
    for i, v in enumerate(values):
        sums[i % n] += v
        counts[i % n] += 1
    return sums, counts
"""
VALUES = np.random.default_rng(8).random(50)


@pytest.mark.parametrize("text", TWICE.values(), ids=TWICE)
def test_results_that_are_one_thing_or_share_memory_are_left_to_python(tmp_path, text):
    assert agree(tmp_path, text, (VALUES, 5))
    assert not any(
        state.served for piece in list(functions._pieces.values())[-1:] for state in piece[0]._states.values()
    )


def test_results_that_are_surely_apart_are_served(tmp_path):
    assert agree(tmp_path, APART, (VALUES, 5))
    assert num_served() > 0
