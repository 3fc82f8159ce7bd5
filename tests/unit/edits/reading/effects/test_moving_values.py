"""Names of values that a look changes, followed through a project."""

import pytest
from tests.unit.edits.scripts import project_of

from flatout.edits.reading.effects.moving_values import moving_names

HEAD = (
    "import collections, csv, itertools\nimport torch\nfrom torch.utils.data import DataLoader\nfrom tqdm import tqdm\n"
)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a = iter(x)", {"a"}),
        ("a = (v for v in x)", {"a"}),
        ("a = zip(x, y)\nb = a", {"a", "b"}),
        ("a = DataLoader(x)\nfor b, c in a:\n    d = b", {"a"}),
        ("a = DataLoader(x)\nb = tqdm(a)\nc = next(iter(b))", {"a", "b"}),
        ("a = csv.reader(x)", {"a"}),
        ("a = itertools.count()", {"a"}),
        ("a = collections.defaultdict(int)", {"a"}),
        ("a = x.parameters()\nb = list(a)", {"a"}),
        ("a = [iter(x), iter(y)]\nfor b in a:\n    pass", {"a", "b"}),
        ("a = []\na.append(iter(x))\nfor i, b in enumerate(a):\n    pass", {"a", "b", "i"}),
        ("a = [iter(x)]\nb = [next(c) for c in a]", {"a", "b", "c"}),
        ("a, b = iter(x), 1", {"a"}),
        ("x.it = iter(x)\nb = x.it", {"it", "b"}),
        ("with open(x) as a:\n    pass", {"a"}),
        ("def f(p, q):\n    return p\nf(1, iter(x))", {"q"}),
        ("def f(p, *q):\n    return p\nf(1, 2, iter(x))", {"q"}),
        ("def f(p=iter([])):\n    return p", {"p", "f"}),
        ("def f():\n    return iter(x)\na = f()", {"f", "a"}),
        ("def f():\n    yield 1\na = f()", {"a"}),
        ("f = lambda: iter(x)\na = f()", {"f", "a"}),
        ("class C:\n    def __init__(self, p):\n        self.q = p\nC(iter(x))", {"p", "q"}),
        ("class C:\n    p: object\nC(iter(x))", {"p"}),
        ("class Moves:\n    pass\na = Moves()", {"a"}),
        ("import strange\na = strange.stream(x)", {"a"}),
        ("a = torch.stack(x)\nb = sorted(iter(x))\nc = len(iter(x))\nd = x.mean()\ne = [1, 2]", set()),
        ("a = x(y)\nb = x.run(y)\nc = x[0]\nd = {1: y}", set()),
    ],
)
def test_names_are_followed(tmp_path, text, names):
    project = project_of(tmp_path, train=HEAD + text)
    assert moving_names(project, {"Moves"}) == names
