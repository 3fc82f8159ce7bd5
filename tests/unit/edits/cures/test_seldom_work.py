"""Work moved into the branch that uses its result: the same lines and weights, or left with a reason."""

import contextlib
import io
from textwrap import indent

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.edits.scripts import edited, project_of
from tests.unit.report.specimens import finding

from flatout.edits.finding_cures import edits_for_findings
from flatout.schema.facts import Frame

HEAD = """\
import math, random
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
random.seed(0)
data = [(torch.randn(8, 4), torch.randint(3, (8,))) for _ in range(23)]
seen = []

class Average:
    def __init__(self):
        self.sum, self.count = 0.0, 0
    def update(self, value):
        self.sum += value
        self.count += 1
        return self.sum / self.count
    def rate(self):
        return self.sum / max(1, self.count)
    def best_of(self, values):
        return max([self.sum, *values])

def accuracy(out, y):
    return (out.argmax(1) == y).float().mean().item()

def distance(a, b):
    prev = list(range(len(b) + 1))
    for i, x in enumerate(a):
        cur = [i + 1]
        for j, z in enumerate(b):
            cur.append(min(prev[j + 1] + 1, cur[j] + 1, prev[j] + (x != z)))
        prev = cur
    return prev[-1]

def norm_of(module):
    total = 0.0
    for p in module.parameters():
        total += p.grad.norm().item() ** 2
    return math.sqrt(total)

def noisy(out):
    return (out + torch.randn_like(out)).mean().item()

def noted(out):
    seen.append(out.mean().item())
    return len(seen)

def both(out, y):
    return accuracy(out, y), F.cross_entropy(out, y).item()
"""

TRAIN = """
def train(model, batches, every=5):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    average = Average()
    running, steps = 0.0, 0
    kept = []
    for i, (x, y) in enumerate(batches):
        out = model(x)
        loss = F.cross_entropy(out, y)
        optimizer.zero_grad()
        loss.backward()
        {work}
    return running, steps

model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3))
print(train(model, data))
print(len(seen), sum(p.double().sum().item() for p in model.parameters()), torch.rand(1))
"""


def script(work, train=TRAIN):
    return HEAD + train.replace("        {work}\n", indent(work.strip("\n"), "        ") + "\n")


def cured(folder, text):
    return edited(folder, "seldom-work", text)


def output_of(text):
    """Return what a script prints, its weights among it."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(text, "train.py", "exec"), {"__name__": "__main__"})
    return printed.getvalue()


def moved(folder, work, train=TRAIN):
    """Return a script with its work moved, after it has printed what it printed before."""
    before = script(work, train)
    after, left = cured(folder, before)
    assert left == ""
    first = output_of(before)
    assert first == output_of(after)
    assert "step" in first, "the branch is never taken"
    return after


SHOWN = """
acc = accuracy(out, y)  # <<
if i % every == 0:
    # now and then
    print(f"step {i} acc {acc:.3f}")
optimizer.step()
"""


def test_the_work_becomes_the_first_statement_of_the_branch(tmp_path):
    after = moved(tmp_path, SHOWN.replace("# <<", "# of this batch  # <<"))
    assert (
        """\
        loss.backward()
        if i % every == 0:
            # now and then
            acc = accuracy(out, y)  # of this batch
            print(f"step {i} acc {acc:.3f}")
"""
        in after
    )


def test_it_stays_under_the_condition_where_the_optimizer_steps_between(tmp_path):
    after = moved(tmp_path, "norm = norm_of(model)  # <<\noptimizer.step()\nif i % 7 == 0:\n    print('step', norm)")
    assert (
        """\
        if i % 7 == 0:
            norm = norm_of(model)
        optimizer.step()
        if i % 7 == 0:
            print('step', norm)
"""
        in after
    )


STEP = "optimizer.step()\n"
MOVED = {
    "two at once": "acc, ce = both(out, y)  # <<\nif i % 5 == 0:\n    print('step', acc, ce)\n" + STEP,
    "annotated": "acc: float = accuracy(out, y)  # <<\nif i % 5 == 0:\n    print('step', acc)\n" + STEP,
    "a row of them": (
        "guess = out.argmax(1).tolist()\ntruth = y.tolist()\nper = distance(guess, truth) / len(truth)  # <<\n"
        "acc = accuracy(out, y)\nif i % 5 == 0:\n    print('step', per, acc)\n" + STEP
    ),
    "a running sum between": (
        "acc = accuracy(out, y)  # <<\nrunning += loss.item() * len(x)\nsteps += 1\n"
        "if steps % 5 == 0:\n    print('step', acc, running)\n" + STEP
    ),
    "in lines of its own": (
        "acc = accuracy(  # <<\n    out,\n    y,  # labels\n)\nif i % 5 == 0:\n    print('step', acc)\n" + STEP
    ),
    "without gradients": (
        "with torch.no_grad():\n    guess = out.argmax(1)\n    acc = (guess == y).float().mean().item()  # <<\n"
        "if i % 5 == 0:\n    print('step', acc)\n" + STEP
    ),
    "of a method": (
        "average.update(loss.item())\nrate = average.rate()  # <<\nif i % 5 == 0:\n    print('step', rate)\n" + STEP
    ),
    "deep in the branch": (
        "acc = accuracy(out, y)  # <<\nif i % 5 == 0:\n    for _ in range(2):\n        if steps == 0:\n"
        "            print('step', [acc for _ in range(2)])\n" + STEP
    ),
    "a value of the device": "value = loss.item()  # <<\nif i % 5 == 0:\n    print('step', value)\n" + STEP,
    "with continue between": (
        "acc = accuracy(out, y)  # <<\nif i == 3:\n    continue\nif i % 5 == 0:\n    print('step', acc)\n" + STEP
    ),
    "with break between": (
        "acc = accuracy(out, y)  # <<\nif i == 13:\n    break\nif i % 5 == 0:\n    print('step', acc)\n" + STEP
    ),
    "with another branch between": (
        "acc = accuracy(out, y)  # <<\nif i % 2:\n    print('step', i)\nif i % 5 == 0:\n    print('acc', acc)\n" + STEP
    ),
    "on one line": "acc = accuracy(out, y)  # <<\nif i % 5 == 0: print('step', acc)\n" + STEP,
    "an else that uses something else": (
        "acc = accuracy(out, y)  # <<\nif i % 5 == 0:\n    print('step', acc)\nelse:\n    steps += 1\n" + STEP
    ),
    "in a try": (
        "try:\n    acc = accuracy(out, y)  # <<\n    if i % 5 == 0:\n        print('step', acc)\n"
        "except KeyboardInterrupt:\n    break\n" + STEP
    ),
    "in a with": (
        "with torch.enable_grad():\n    acc = accuracy(out, y)  # <<\n    optimizer.step()\n    if i % 5 == 0:\n"
        "        print('step', acc)\n"
    ),
    "in a loop within": (
        "optimizer.step()\nfor k in range(4):\n    part = (out[k::4] ** 2).sum().item()  # <<\n"
        "    if k == 2 and i % 5 == 0:\n"
        "        print('step', part)\n"
    ),
    "at the end of the epoch": (
        "norm = norm_of(model)  # <<\noptimizer.step()\nif i == len(batches) - 1:\n    print('step', norm)\n"
    ),
    "where a flag is set": "acc = accuracy(out, y)  # <<\noptimizer.step()\nif every > 4:\n    print('step', acc)\n",
    "of a list made for it": (
        "best = average.best_of([v.item() for v in out.flatten()])  # <<\n"
        "if not i % 5:\n    print('step', best)\n" + STEP
    ),
}


@pytest.mark.parametrize("work", MOVED.values(), ids=MOVED)
def test_the_same_is_printed_and_learned(tmp_path, work):
    after = moved(tmp_path, work)
    lines = [line.strip() for line in after.splitlines()]
    name = next(line for line in script(work).splitlines() if "# <<" in line).strip().split(" =")[0]
    at = next(at for at, line in enumerate(lines) if line.startswith(f"{name} ="))
    assert any(line.startswith("if ") for line in lines[at - 4 : at]), "it stands in no branch"


def test_all_that_the_branch_alone_uses_goes_along(tmp_path):
    after = moved(tmp_path, MOVED["a row of them"])
    assert after.index("if i % 5 == 0:") < after.index("guess =") < after.index("truth =") < after.index("acc = acc")


def test_comments_stay(tmp_path):
    after = moved(tmp_path, MOVED["in lines of its own"])
    assert "            acc = accuracy(\n                out,\n                y,  # labels\n            )\n" in after


LEFT = {
    "a meter that counts": (SHOWN.replace("accuracy(out, y)", "average.update(loss.item())"), "self.sum is changed"),
    "a draw": (SHOWN.replace("accuracy(out, y)", "noisy(out)"), "torch.randn_like()"),
    "a list that grows": (SHOWN.replace("accuracy(out, y)", "noted(out)"), "seen.append()"),
    "a module": (SHOWN.replace("accuracy(out, y)", "model(x).mean()"), "model() may do more"),
    "a print": (SHOWN.replace("accuracy(out, y)", "[print(v) for v in y]"), "print()"),
    "in place": (SHOWN.replace("accuracy(out, y)", "out.detach().mul_(0.5).mean()"), "mul_() changes"),
    "a generator": (SHOWN.replace("accuracy(out, y)", "next(numbers)"), "next()"),
    "a walrus": (SHOWN.replace("accuracy(out, y)", "(k := 1) + k"), "does more than to compute"),
    "after the loop": (SHOWN.replace("optimizer.step()", "optimizer.step()\nlast = acc"), "used by more than"),
    "in the test": (SHOWN.replace("i % every == 0", "acc > 0.5"), "used by more than"),
    "in the else": (SHOWN + "if i % 2:\n    pass\nelse:\n    print(acc)\n", "used by more than"),
    "in an f-string behind": (SHOWN + "kept.append(f'{acc}')\n", "used by more than"),
    "before, as the last turn left it": ("if i:\n    print(acc)\n" + SHOWN, "used by more than"),
    "of itself": (SHOWN.replace("accuracy(out, y)", "acc + 1"), "used by more than"),
    "bound twice": ("acc = 0\n" + SHOWN, "used by more than"),
    "added to": (SHOWN.replace("if i %", "acc += 1\nif i %"), "used by more than"),
    "deleted": (SHOWN + "del acc\n", "used by more than"),
    "in a closure": (SHOWN.replace("print(f", "later = lambda: acc\n    print(f"), "used by more than"),
    "in a function": (SHOWN + "def show():\n    print(acc)\n", "used by more than"),
    "an attribute": (SHOWN.replace("acc =", "average.acc ="), "used by more than"),
    "an item": (SHOWN.replace("acc =", "kept[i] ="), "used by more than"),
    "no branch": ("acc = accuracy(out, y)  # <<\nprint(acc)\n", "used by more than"),
    "unused": ("acc = accuracy(out, y)  # <<\nif i % 5 == 0:\n    print(i)\n", "used by more than"),
    "two branches": (SHOWN + "if i == 3:\n    print(acc)\n", "used by more than"),
    "a condition that draws": (SHOWN.replace("i % every == 0", "random.random() < 0.2"), "the branch's condition"),
    "a condition that counts": (SHOWN.replace("i % every == 0", "average.update(1)"), "the branch's condition"),
    "a condition that changes": (
        "acc = accuracy(out, y)  # <<\noptimizer.step()\nsteps += 1\nif steps % 5 == 0:\n    print(acc)\n",
        "may change between",
    ),
    "a condition of a tensor": (
        "acc = accuracy(out, y)  # <<\noptimizer.step()\nif loss < 1:\n    print(acc)\n", "may change between",
    ),
    "an input that changes": (
        "acc = accuracy(out, y)  # <<\nout = out[:2]\nif loss < 1:\n    print(acc)\n", "may change between",
    ),
    "an error that is caught": (
        "try:\n    acc = accuracy(out, y)  # <<\n    optimizer.step()\n    if i % 5 == 0:\n        print(acc)\n"
        "except ValueError:\n    pass\n", "an error in it would be caught by",
    ),
    "locals": (SHOWN + "print(sorted(locals()))\n", "locals() may read it"),
}  # fmt: skip


@pytest.mark.parametrize(("work", "reason"), LEFT.values(), ids=LEFT)
def test_what_somebody_would_notice_is_left(tmp_path, work, reason):
    after, left = cured(tmp_path, script(work))
    assert after == ""
    assert reason in left


def test_a_name_of_the_module_that_a_function_reads_is_left(tmp_path):
    loop = "acc = 0\n\ndef f():\n    global acc\n    for i, (x, y) in enumerate(data):\n"
    text = HEAD + loop + "        acc = accuracy(x, y)  # <<\n        if i % 5 == 0:\n            print(acc)\n"
    assert "a name of other functions" in cured(tmp_path, text)[1]
    show = "def show():\n    print(acc)\n\nfor x, y in data:\n"
    text = HEAD + show + "    acc = len(x)  # <<\n    if len(y):\n        print(acc)\n"
    assert "used by more than" in cured(tmp_path, text)[1]


LOOP = """
for i, (x, y) in enumerate(data):
    acc = accuracy(x, y)
    if i % 5 == 0:
        print('step', acc)
"""


def test_at_the_level_of_the_module(tmp_path):
    loop = LOOP.replace("y)\n", "y)  # <<\n")
    after, left = cured(tmp_path, HEAD + loop)
    assert left == ""
    assert "        acc = accuracy(x, y)\n        print" in after
    assert output_of(HEAD + loop) == output_of(after)


def test_a_name_that_another_file_imports_is_left(tmp_path):
    project = project_of(tmp_path, train=HEAD + "import other\n" + LOOP, other="from train import acc\n")
    line = next(at for at, each in enumerate(project.script.lines, 1) if each == "    acc = accuracy(x, y)")
    found = finding(code="HO001", location=Frame(str(project.script.path), line, "f"))
    assert [each for each in edits_for_findings(project, [found], [tmp_path]) if "branch" in each.edit.name] == []


# -- from inside the function that does the work ----------------------------------------------------------------------


def test_the_line_of_a_function_leads_to_the_loop(tmp_path):
    text = (
        script(MOVED["a row of them"].replace("  # <<", ""))
        .replace("            cur.append(min(", "            # <<\n            cur.append(min(")
        .replace("            # <<\n            cur.append(", "            cur.append(  # <<\n                ")
    )
    after, left = cured(tmp_path, text)
    assert left == ""
    assert after.index("if i % 5 == 0:") < after.index("per = distance(guess, truth)")
    assert output_of(text) == output_of(after)


METHODS = """
class Scores:
    def __init__(self):
        self.ys, self.ps = [], []
    def add(self, y, p):
        self.ys += y.tolist()
        self.ps += p.detach().max(1).values.tolist()
    def auc(self):
        return ranked(self.ys, self.ps)

def ranked(ys, ps):
    order = sorted(range(len(ps)), key=lambda at: ps[at])
    total = 0
    for rank, at in enumerate(order):
        total += rank * (ys[at] > 0)  # <<
    return total / len(ys)

class Trainer:
    def __init__(self, model):
        self.model, self.scores, self.step, self.every = model, Scores(), 0, 4
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def training_step(self, batch):
        x, y = batch
        out = self.model(x)
        loss = F.cross_entropy(out, y)
        self.optimizer.zero_grad()
        loss.backward()
        self.scores.add(y, out)
        auc = self.scores.auc()
        self.optimizer.step()
        if self.step % self.every == 0:
            print("step", self.step, auc)
        self.step += 1

trainer = Trainer(nn.Linear(4, 3))
for batch in data:
    trainer.training_step(batch)
print(sum(p.double().sum().item() for p in trainer.model.parameters()))
"""


def test_the_line_of_a_function_below_a_method_leads_to_the_step(tmp_path):
    after, left = cured(tmp_path, HEAD + METHODS)
    assert left == ""
    assert "        if self.step % self.every == 0:\n            auc = self.scores.auc()\n        self.optim" in after
    assert output_of(HEAD + METHODS) == output_of(after)


def test_a_number_that_is_counted_between_is_no_condition(tmp_path):
    text = METHODS.replace("        self.optimizer.step()\n", "        self.optimizer.step()\n        self.step += 1\n")
    after, left = cured(tmp_path, HEAD + text.replace('", self.step, auc)\n        self.step += 1', '", auc)'))
    assert (after, "may change between" in left) == ("", True)


def test_a_number_that_a_called_function_counts_is_no_condition(tmp_path):
    text = METHODS.replace("\ntrainer =", "\n    def count(self):\n        self.step += 1\n\ntrainer =")
    text = text.replace("        self.optimizer.step()\n", "        self.count()\n")
    after, left = cured(tmp_path, HEAD + text)
    assert (after, "may change between" in left) == ("", True)


# -- loops made at random ---------------------------------------------------------------------------------------------

PIECES = st.sampled_from(
    [
        "acc = accuracy(out, y)",
        "ce = F.cross_entropy(out, y).item()",
        "per = distance(out.argmax(1).tolist(), y.tolist())",
        "top = out.max(1)\n        best = top.values.mean().item()",
        "total += loss.item()",
        "count += 1",
        "optimizer.step()",
        "out = out * 0.5",
        "out.data.mul_(1.5)",
        "meter = average.update(loss.item())",
        "rate = average.rate()",
        "draw = noisy(out)",
        "size = len(kept)",
        "kept.append(i)",
        "if count % 4 == 3:\n            continue",
        "if i % 3 == 0:\n            print('third', i)",
        "print('always', i)",
    ]
)
USES = st.lists(st.sampled_from(["acc", "ce", "per", "best", "meter", "rate", "draw", "size", "total"]), max_size=4)
TESTS = st.sampled_from(
    ["i % 3 == 0", "count % 3 == 1", "i == len(kept)", "total > 5", "out.sum() > 0", "len(y) and i % 2"]
)
NAMES = ("acc", "ce", "per", "best", "meter", "rate", "draw", "size", "top")


@settings(max_examples=60, deadline=None)
@given(st.lists(PIECES, min_size=2, max_size=9, unique=True), USES, TESTS, st.lists(PIECES, max_size=2), st.data())
def test_loops_made_at_random_print_the_same(tmp_path_factory, pieces, uses, test, behind, choice):
    bound = {name for name in NAMES if any(f"{name} =" in each for each in pieces)}
    at = [number for number, each in enumerate(pieces) if any(f"{name} = " in each for name in NAMES)]
    if not at:
        return
    marked = choice.draw(st.sampled_from(at))
    own = [name for name in NAMES if f"{name} =" in pieces[marked]]
    used = own + [each for each in uses if each in bound | {"total"}]
    lines = [each if number != marked else each.replace("\n", "  # <<\n", 1) for number, each in enumerate(pieces)]
    lines[marked] = lines[marked] if "# <<" in lines[marked] else lines[marked] + "  # <<"
    shown = f"if {test}:\n            print('shown', {', '.join(used) or 'i'})"
    body = "\n        ".join([*lines, shown, *behind])
    text = (
        HEAD
        + f"""
def train(model, batches):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    average, total, count, kept = Average(), 0.0, 0, []
    for i, (x, y) in enumerate(batches):
        out = model(x)
        loss = F.cross_entropy(out, y)
        optimizer.zero_grad()
        loss.backward(retain_graph=True)
        {body}
    return total, count, len(kept), average.sum

model = nn.Linear(4, 3)
print(train(model, data[:12]))
print(model.weight.double().sum().item(), torch.rand(1))
"""
    )
    after, left = cured(tmp_path_factory.mktemp("loop"), text)
    assert bool(after) != bool(left)
    if after:
        assert output_of(text.replace("  # <<", "")) == output_of(after)
