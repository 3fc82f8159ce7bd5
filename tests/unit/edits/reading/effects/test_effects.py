"""Whether code has an effect besides its value: what is pure, and what is left with the reason that names it.

Modules: flatout.edits.reading.effects.operator_classes, flatout.edits.reading.effects.pure_calls,
flatout.edits.reading.effects.set_attributes.
"""

import ast
from textwrap import dedent, indent

import pytest
from tests.unit.edits.scripts import project_of

from flatout.edits.reading.effects.effects import Effects

HEAD = """\
import collections, copy, itertools, json, math, operator, random, time
from collections import Counter, defaultdict
import numpy as np
import torch
import torch.nn.functional as F
from sklearn import metrics
from torch import nn
from torch.utils.data import DataLoader
LIMIT = 3
seen = []
model = nn.Linear(3, 2)
"""


def effect(folder, text, expression="f(x, y)"):
    """Return what an expression at the end of a script may do."""
    project = project_of(folder, train=f"{HEAD}{dedent(text)}\nresult = {expression}\n")
    last = project.script.tree.body[-1]
    assert isinstance(last, ast.Assign)
    return Effects(project).of(project.script, last.value)


def body(text):
    return "def f(x, y):\n" + indent(dedent(text).strip(), "    ")


PURE = [
    "return (x.argmax(1) == y).float().mean().item()",
    "return sum(a == b for a, b in zip(x.tolist(), y.tolist())) / len(y)",
    "total = 0.0\nfor p in model.parameters():\n    total += p.grad.norm().item() ** 2\nreturn total ** 0.5",
    "return metrics.roc_auc_score(y.cpu().numpy(), x.detach().cpu().numpy())",
    "counts = {}\nfor v in y:\n    counts[v] = counts.get(v, 0) + 1\nreturn counts",
    "counts = defaultdict(int)\nfor v in y:\n    counts[v] += 1\nreturn sorted(counts.items(), key=lambda p: p[1])",
    "hits = []\nfor a, b in zip(x, y):\n    if a == b:\n        hits.append(a)\nreturn hits",
    "m = torch.zeros(3, 3)\nfor a, b in zip(x, y):\n    m[a, b] += 1\nreturn m / m.sum()",
    "m = np.zeros((3, 3), dtype=int)\nnp.maximum(m, 1)\nm[0][1] += 2\nreturn m.tolist()",
    "values, rows = x.topk(5, 1)\nreturn rows.eq(y.view(-1, 1)).sum().item()",
    "with torch.no_grad():\n    p = F.softmax(x, 1)\nreturn -(p * p.log()).sum(1).mean().item()",
    "return Counter(y).most_common(3)",
    "try:\n    return math.log(x)\nexcept ValueError:\n    return 0.0",
    "if len(x) != len(y):\n    raise ValueError(f'{len(x)} are not {len(y)}')\nreturn max(map(len, x), default=0)",
    "from sklearn.metrics import f1_score\nreturn f1_score(x, y)",
    "names = [n for n, p in model.named_parameters() if p.requires_grad]\nreturn ', '.join(names).upper()",
    "a = x.clone()\na += 1\na.mul_(2)\nreturn a",
    "def inner(v):\n    return v + LIMIT\nreturn [inner(v) for v in x]",
    "return [v for v in seen if v > LIMIT][-1:]",
    "order = sorted(range(len(x)), key=lambda i: x[i])\nreturn order[0]",
    "a = x.sort(dim=0)[0]\ndel x\nreturn a",
    "rows = [[0] * len(y) for _ in x]\nfor i in range(len(x)):\n    rows[i][0] = i\nreturn rows",
    "found = {}\nfor k, v in zip(x, y):\n    found.setdefault(k, v)\nfound.update(a=1)\nreturn len(found)",
    "pairs = zip(x, y)\nreturn [a for a, b in pairs if b]",
    "return json.dumps({'x': float(x), 'y': [round(v, 3) for v in y]})",
    "return copy.deepcopy(seen) + list(itertools.chain(x, y))",
    "return torch.linalg.norm(x) / np.linalg.norm(y) + getsize(x)\n\ndef getsize(v):\n    return v.numel()",
    "def walk():\n    for v in x:\n        yield v\nreturn sum(walk())",
]

LEVENSHTEIN = """\
prev = list(range(len(y) + 1))
for i, a in enumerate(x):
    cur = [i + 1]
    for j, b in enumerate(y):
        cur.append(min(prev[j + 1] + 1, cur[j] + 1, prev[j] + (a != b)))
    prev = cur
return prev[-1] / max(1, len(y))
"""
TABLE = """\
d = [[0] * (len(y) + 1) for _ in range(len(x) + 1)]
for i in range(len(x) + 1):
    d[i][0] = i
for i in range(1, len(x) + 1):
    for j in range(1, len(y) + 1):
        cost = 0 if x[i - 1] == y[j - 1] else 1
        d[i][j] = min(d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + cost)
return d[-1][-1]
"""


@pytest.mark.parametrize("text", [*PURE, LEVENSHTEIN, TABLE])
def test_what_computes_alone_is_pure(tmp_path, text):
    assert effect(tmp_path, body(text)) == ""


IMPURE = [
    ("x += 1\nreturn x", "x is changed"),
    ("x.add_(1)\nreturn x", "x.add_() changes"),
    ("x[0] = 1\nreturn x", "x[0] is changed"),
    ("seen.append(x)\nreturn x", "seen.append() changes"),
    ("global LIMIT\nLIMIT = x\nreturn x", "global LIMIT"),
    ("print(x)\nreturn x", "print()"),
    ("return open(x)", "open()"),
    ("return x + random.random()", "random.random()"),
    ("return x + torch.randn(3)", "torch.randn()"),
    ("return np.random.choice(x)", "np.random.choice()"),
    ("return F.dropout(x)", "F.dropout()"),
    ("return x.bernoulli()", "x.bernoulli()"),
    ("return time.time() - x", "time.time()"),
    ("return next(x)", "next()"),
    ("return model(x)", "model()"),
    ("return model.eval()", "model.eval()"),
    ("model.half()\nreturn x", "model.half()"),
    ("return x(y)", "x()"),
    ("f.calls = x\nreturn x", "f.calls is changed"),
    ("y.grad = None\nreturn x", "y.grad is changed"),
    ("del y[0]\nreturn x", "y[0] is changed"),
    ("return torch.add(x, y, out=x)", "out="),
    ("return F.relu(x, inplace=True)", "inplace="),
    ("x.backward()\nreturn x", "x.backward()"),
    ("row = x\nrow += 1\nreturn row", "row is changed"),
    ("rows = [x]\nrows[0] += 1\nreturn rows", "rows[0] is changed"),
    ("rows = []\nrows.append(x)\nother = rows\nother[0] += 1", "other[0] is changed"),
    ("for row in x:\n    row[0] = 1\nreturn x", "row[0] is changed"),
    ("view = x.view(-1)\nview[0] = 1\nreturn x", "view[0] is changed"),
    ("a = +x\na += 1\nreturn a", "a is changed"),
    ("a = np.array(x, copy=False)\na += 1\nreturn a", "a is changed"),
    ("x.sort()\nreturn x", "x.sort() changes"),
    ("with open(x) as file:\n    return 1", "with open(x)"),
    ("import wandb\nreturn x", "import wandb"),
    ("return sorted(x, key=y)", "y is called"),
    ("return list(map(y, x))", "y is called"),
    ("return (n := x) + n", "does more than to compute"),
    ("return eval(x)", "eval()"),
    ("return helper(x)\n\ndef helper(v):\n    seen.append(v)", "helper(): seen.append()"),
    ("def inner():\n    nonlocal x\n    x = 1\ninner()\nreturn x", "inner(): `nonlocal x`"),
    ("return torch.autograd.grad(x, y)", "torch.autograd.grad()"),
    ("return torch.save(x, y)", "torch.save()"),
    ("x.log('loss', y)\nreturn x", "x.log()"),
    ("class Mine:\n    pass\nreturn Mine()", "class Mine"),
    ("sum = y\nreturn sum(x)", "sum()"),
    ("out = collections.deque(x)\nout.popleft().append(y)\nreturn out", "append() changes"),
    ("match x:\n    case [a]:\n        return a", "match x"),
    ("return getattr(x, 'do_' + y)()", "getattr"),
    ('return f"{print(x)}"', "print()"),
    ("return [print(v) for v in x]", "print()"),
    ("return lambda: seen.append(x)", "seen.append()"),
]


@pytest.mark.parametrize(("text", "reason"), IMPURE)
def test_what_does_more_is_named(tmp_path, text, reason):
    assert reason in effect(tmp_path, body(text))


# -- methods ----------------------------------------------------------------------------------------------------------

SCORES = """
class Scores:
    def __init__(self):
        self.ys, self.total, self.max = [], 0.0, None
    def add(self, y):
        self.ys.append(y)
        self.total += y
        return self.total
    def auc(self):
        return self.part() / max(1, len(self.ys))
    def part(self):
        return sum(self.ys)
    @property
    def mean(self):
        return self.total / 2
    @property
    def taken(self):
        return self.ys.pop()
    @torch.no_grad()
    def best(self):
        return max(self.ys)
    @kept
    def kept(self):
        return 1
scores = Scores()
"""


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("scores.auc()", ""),
        ("scores.best()", ""),
        ("scores.mean + 1", ""),
        ("x.mean() + x.max()", ""),
        ("scores.add(y)", "add(): self.ys.append() changes"),
        ("scores.mean(y)", "calls what a property returns"),
        ("scores.taken", "taken(): self.ys.pop() changes"),
        ("scores.kept()", "kept may do more"),
        ("other.auc()", "other may be of a class that is not seen, with another auc()"),
        ("scores.reset()", "scores.reset() may do more"),
        ("Scores()", "Scores() may do more"),
    ],
)
def test_methods_are_read_wherever_they_are_defined(tmp_path, expression, reason):
    found = effect(tmp_path, SCORES, expression)
    assert (found == "") if not reason else reason in found


def test_a_method_of_a_class_of_a_library_is_left(tmp_path):
    text = "class Mine(torchmetrics.Metric):\n    def auc(self):\n        return 1\nmine = Mine()"
    assert "torchmetrics.Metric may do more" in effect(tmp_path, text, "mine.auc()")


def test_all_methods_of_a_name_must_be_pure(tmp_path):
    other = "class Other:\n    def auc(self):\n        print('auc')\n        return 0\n"
    assert "auc(): print()" in effect(tmp_path, SCORES + other, "scores.auc()")


def test_a_metric_of_a_library_with_the_name_of_a_pure_method_is_left(tmp_path):
    text = "class Net:\n    def __init__(self):\n        self.mean = MeanMetric()\n"
    text += "    def f(self, x):\n        return self.mean(x)"
    assert "mean is set in the script" in effect(tmp_path, text + "\nnet = Net()", "net.f(x)")
    assert "mean is set in the script" in effect(tmp_path, text, "x.mean(y)")


def test_an_attribute_that_is_handed_in_is_a_method_of_tensors_for_all_but_its_own_objects(tmp_path):
    text = """
    class Scale:
        def __init__(self, mean):
            self.mean = mean
        def f(self, x):
            return self.mean(x)
    scale = Scale(model)
    """
    assert effect(tmp_path, text, "x.mean()") == ""
    assert "mean is set" in effect(tmp_path, text, "scale.mean(x)")
    assert "mean is set" in effect(tmp_path, text, "scale.f(x)")


def test_functions_that_call_one_another_are_read_together(tmp_path):
    text = "def f(x, y):\n    return g(x, y)\ndef g(x, y):\n    return f(x, y) if y else h(x)\n"
    text += "def h(x):\n    {}\n    return x"
    assert effect(tmp_path, text.format("pass")) == ""
    text = text.format("print(x)")
    assert "print()" in effect(tmp_path, text)
    project = project_of(tmp_path, train=f"{HEAD}{text}\na = f(x, y)\nb = g(x, y)\n")
    effects, body = Effects(project), project.script.tree.body
    assert all("print()" in effects.of(project.script, each.value) for each in body[-2:])
    assert "print()" in effects.of(project.script, body[-1].value), "asked again"


def test_functions_of_other_files_are_read(tmp_path):
    text = "from scores import rate, count as number\nresult = {}\n"
    scores = "hits = []\ndef rate(x):\n    return x.mean()\ndef count(x):\n    hits.append(x)\n    return len(hits)\n"
    for call, reason in (("rate(x)", ""), ("number(x)", "count(): hits.append()")):
        project = project_of(tmp_path, train=text.format(call), scores=scores)
        found = Effects(project).of(project.script, project.script.tree.body[-1].value)
        assert reason in found and bool(found) == bool(reason)


def test_a_function_that_the_script_replaces_is_left(tmp_path):
    text = "np.mean = lambda x: print(x)\ndef f(x, y):\n    return np.mean(x)"
    assert "mean is set in the script" in effect(tmp_path, text)


# -- operators --------------------------------------------------------------------------------------------------------

DRAWS = """
class Images:
    def __len__(self):
        return 9
    def __getitem__(self, at):
        return self.rows[at] + random.random()
train_set = Images()
first = train_set
loader = DataLoader(train_set)
"""


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("train_set[0]", "train_set may be an iterator or the like"),
        ("first[0]", "first may be"),
        ("f(train_set)", "data may be"),
        ("[y for _, y in loader]", "loader may be"),
        ("len(train_set) + len(loader)", ""),
        ("y[0] + x[1:]", ""),
    ],
)
def test_objects_that_draw_where_they_are_looked_at(tmp_path, expression, reason):
    found = effect(tmp_path, DRAWS + "def f(data):\n    return data[3]\n", expression)
    assert (found == "") if not reason else reason in found


def test_an_object_that_acts_on_every_look_leaves_everything(tmp_path):
    text = "class Spy:\n    def __getattr__(self, name):\n        seen.append(name)\n        return 1\n"
    assert "Spy may act whenever" in effect(tmp_path, text, "x.shape")


def test_the_names_that_are_read_are_those_of_all_functions_called(tmp_path):
    text = "def f(x):\n    return g(x)\ndef g(x):\n    return x + LIMIT\n"
    project = project_of(tmp_path, train=f"{HEAD}{text}\nresult = f(x)\n")
    found = Effects(project).reached(project.script, project.script.tree.body[-1])
    assert [each.name for each in found] == ["f", "g"]
