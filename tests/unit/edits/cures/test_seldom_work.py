"""Work done where the branch that uses its result is taken: the same lines and weights, or left with a reason."""

import contextlib
import io
import warnings
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

def table(a, b):
    n, m = len(a), len(b)
    dp = [[0] * (m + 1) for _ in range(n + 1)]
    for i in range(n + 1):
        dp[i][0] = i
    for j in range(m + 1):
        dp[0][j] = j
    for i in range(1, n + 1):
        for j in range(1, m + 1):
            cost = 0 if a[i - 1] == b[j - 1] else 1
            dp[i][j] = min(dp[i - 1][j] + 1, dp[i][j - 1] + 1, dp[i - 1][j - 1] + cost)
    return dp[n][m]

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


def test_the_work_stands_under_the_condition_of_the_branch(tmp_path):
    after = moved(tmp_path, SHOWN.replace("# <<", "# of this batch  # <<").replace("% every", "% 5"))
    assert (
        """\
        loss.backward()
        if i % 5 == 0 or type(out) is not torch.Tensor or type(y) not in (torch.Tensor, int, float):
            acc = accuracy(out, y)  # of this batch
        if i % 5 == 0:
            # now and then
            print(f"step {i} acc {acc:.3f}")
"""
        in after
    )


def test_what_an_argument_is_is_asked_first(tmp_path):
    after = moved(tmp_path, SHOWN)
    assert "if type(every) is not int or every == 0 or i % every == 0 or type(out) is not torch.Tensor" in after
    train = TRAIN.replace("train(model, data)", "train(model, data, torch.tensor(5))")
    moved(tmp_path, SHOWN, train)


def test_a_counter_is_counted_on(tmp_path):
    counted = "acc = accuracy(out, y)  # <<\nsteps += 1\nsteps += 1\nif steps % 6 == 0:\n    print('step', acc)"
    after = moved(tmp_path, counted)
    assert "if (steps + 2) % 6 == 0 or type(out)" in after


STEP = "optimizer.step()\n"
PRINTED = "if i % 5 == 0:\n    print('step', {shown})\n"


def work(lines, shown, behind=STEP):
    """Return some work that is printed behind the optimizer's step."""
    return lines.strip() + "\n" + behind + PRINTED.replace("{shown}", shown)


MOVED = {
    "two at once": work("acc, ce = both(out, y)  # <<", "acc, ce"),
    "annotated": work("acc: float = accuracy(out, y)  # <<", "acc"),
    "a row of them": work(
        "guess = out.argmax(1).tolist()\ntruth = y.tolist()\nper = distance(guess, truth) / len(truth)  # <<", "per"
    ),
    "a table": work("per = table(out.argmax(1).tolist(), y.tolist())  # <<", "per"),
    "a running sum between": work("acc = accuracy(out, y)  # <<", "acc, running", "running += loss.item() * len(x)\n"),
    "in lines of its own": work("acc = accuracy(  # <<\n    out,\n    y,  # labels\n)", "acc"),
    "without gradients": work(
        "with torch.no_grad():\n    guess = out.argmax(1)\n    acc = (guess == y).float().mean().item()  # <<", "acc"
    ),
    "a value of the device": work("value = loss.item()  # <<", "value"),
    "a norm of gradients": work("norm = norm_of(model)  # <<", "norm"),
    "a norm in lines": work(
        "norm = 0.0\nfor p in model.parameters():\n    if p.grad is not None:\n"
        "        norm += p.grad.data.norm(2).item() ** 2  # <<\nnorm = norm ** 0.5", "norm",
    ),
    "a norm of norms": work(
        "norm = torch.stack([p.grad.norm() for p in model.parameters()]).norm()  # <<", "norm.item()"
    ),
    "ratios": work(
        "ratios = {n: (p.grad.std() / p.std()).log10().item() for n, p in model.named_parameters()}  # <<",
        "sorted(ratios.items())",
    ),
    "histograms": work(
        "hists = {}\nfor name, p in model.named_parameters():\n    hists[name] = torch.histc(p.data, bins=8)  # <<",
        "[each.tolist() for each in hists.values()]",
    ),
    "by classes": work(
        "hits, met = [0] * 3, [0] * 3\nfor p, t in zip(out.argmax(1).tolist(), y.tolist()):\n    met[t] += 1  # <<\n"
        "    hits[t] += int(p == t)", "hits, met",
    ),
    "by masks": work(
        "pred, accs = out.argmax(dim=1), []\nfor c in range(3):\n    mask = y == c\n"
        "    accs.append((pred[mask] == c).float().sum().item())  # <<", "accs",
    ),
    "arrays": work(
        "probs = F.softmax(out, dim=1).detach().numpy()\nconf = np.zeros((3, 3), dtype=np.int64)\n"
        "for t, p in zip(y.numpy(), probs.argmax(1)):\n    conf[t, p] += 1  # <<\nhigh = np.percentile(probs, 90)",
        "conf.tolist(), high",
    ),
    "the best of five": work(
        "_, top = out.topk(2, 1, True, True)\nright = top.t().eq(y.view(1, -1).expand_as(top.t()))\n"
        "acc = right[:2].reshape(-1).float().sum(0).mul(100.0 / y.size(0)).item()  # <<", "acc",
    ),
    "F1": work(
        "f1s = []\nfor c in range(3):\n    tp = ((out.argmax(1) == c) & (y == c)).sum().item()\n"
        "    other = ((out.argmax(1) == c) != (y == c)).sum().item()\n    f1s.append(2 * tp / max(1, 2 * tp + other))\n"
        "f1 = sum(f1s) / len(f1s)  # <<", "f1",
    ),
    "deep in the branch": (
        "acc = accuracy(out, y)  # <<\nif i % 5 == 0:\n    for _ in range(2):\n        if steps == 0:\n"
        "            print('step', [acc for _ in range(2)])\n" + STEP
    ),
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
    "a second condition that is not told": (
        "acc = accuracy(out, y)  # <<\nif i % 5 == 0 and loss.item() > 0:\n    print('step', acc)\n" + STEP
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
        "    if k == 2 and i % 5 == 0:\n        print('step', part)\n"
    ),
    "a counter of another loop by the same name": (
        "norm = sum(p.grad.norm() for p in model.parameters()).item()  # <<\nfor p in model.parameters():\n"
        "    p.grad.mul_(0.5)\nif i % 5 == 0:\n    print('step', norm)\n" + STEP
    ),
}  # fmt: skip


@pytest.mark.parametrize("work", MOVED.values(), ids=MOVED)
def test_the_same_is_printed_and_learned(tmp_path, work):
    lines = [line.strip() for line in moved(tmp_path, work).splitlines()]
    marked = next(line for line in script(work).splitlines() if "# <<" in line).replace("  # <<", "").strip()
    at = next(at for at, line in enumerate(lines) if line.startswith(marked.split("  #")[0]))
    heads = [line for line in lines[max(0, at - 15) : at] if line.startswith("if ")]
    assert any("torch.Tensor" in line or "nn.Module" in line for line in heads), "it stands in no branch"


def test_all_that_the_branch_alone_uses_goes_along(tmp_path):
    after = moved(tmp_path, MOVED["a row of them"])
    assert after.index("if i % 5 == 0 or") < after.index("guess =") < after.index("truth =") < after.index("per = dis")
    assert after.count("if i % 5 == 0 or") == 1


def test_comments_stay(tmp_path):
    after = moved(tmp_path, MOVED["in lines of its own"])
    assert "            acc = accuracy(\n                out,\n                y,  # labels\n            )\n" in after


def test_the_setting_of_a_command_line_is_asked_for(tmp_path):
    args = "parser = argparse.ArgumentParser()\nparser.add_argument('--every', type={}, default={})\n"
    args += "args = parser.parse_args([])\n"
    train = TRAIN.replace("    optimizer =", indent(args, "    ") + "    optimizer =", 1)
    for kind in ("int', default=5", "str', default='7'", "float', default=5.0"):
        given = train.replace("{}, default={}", kind.replace("'", "", 1))
        text = "import argparse\n" + script(SHOWN.replace("every", "args.every").replace("step {i}", "step"), given)
        if "str" not in kind:
            after, left = cured(tmp_path, text)
            assert left == ""
            assert 'argparse.Namespace or type(getattr(args, "every", None)) is not int or args.every == 0' in after
            assert output_of(text) == output_of(after)
    assert cured(tmp_path, text + "\ndef slow(args):\n    args.every = 9\n")[0] == ""


LEFT = {
    "a meter that counts": (SHOWN.replace("accuracy(out, y)", "average.update(loss.item())"), "may change what"),
    "a method": (SHOWN.replace("accuracy(out, y)", "average.rate()"), "average.rate() may do more"),
    "a draw": (SHOWN.replace("accuracy(out, y)", "noisy(out)"), "torch.randn_like()"),
    "a list that grows": (SHOWN.replace("accuracy(out, y)", "noted(out)"), "may change what others have"),
    "a module": (SHOWN.replace("accuracy(out, y)", "model(x).mean()"), "model() may do more"),
    "a print": (SHOWN.replace("accuracy(out, y)", "[print(v) for v in y]"), "print()"),
    "in place": (SHOWN.replace("accuracy(out, y)", "out.detach().mul_(0.5).mean()"), "mul_() may do more"),
    "added to in place": ("acc = out\nacc += 1  # <<\nif i % 5 == 0:\n    print(acc)\n", "changed in place"),
    "a part set in place": ("acc = out.detach()\nacc[0] = 1  # <<\nif i % 5 == 0:\n    print(acc)\n", "may be changed"),
    "an item of it": (
        "rows = [v for v in out]\nrows[0] += 1  # <<\nif i % 5 == 0:\n    print(rows)\n", "changed in place",
    ),
    "an unpacked argument": (SHOWN.replace("accuracy(out, y)", "torch.add(out, *kept)"), "more than is known"),
    "a generator": (SHOWN.replace("accuracy(out, y)", "next(numbers)"), "next()"),
    "a walrus": (SHOWN.replace("accuracy(out, y)", "(k := 1) + k"), "may do more than to compute"),
    "a kept list": (SHOWN.replace("accuracy(out, y)", "sum(kept)"), "kept is a container"),
    "an attribute of anything": (SHOWN.replace("accuracy(out, y)", "model.weight.norm()"), "reading model.weight"),
    "after the loop": (SHOWN.replace("optimizer.step()", "optimizer.step()\nlast = acc"), "used by more than"),
    "in the test": (SHOWN.replace("i % every == 0", "acc > 0.5"), "used by more than"),
    "in the else": (SHOWN + "if i % 2:\n    pass\nelse:\n    print(acc)\n", "used by more than"),
    "in an f-string behind": (SHOWN + "kept.append(f'{acc}')\n", "used by more than"),
    "before, as the last turn left it": ("if i:\n    print(acc)\n" + SHOWN, "may do more than to compute"),
    "as the last turn left it": (
        "if i % 2:\n    acc = accuracy(out, y)  # <<\nif i % 5 == 0:\n    print(acc)\n", "as an earlier turn left it",
    ),
    "of itself": (SHOWN.replace("accuracy(out, y)", "acc + 1"), "as an earlier turn left it"),
    "deleted": (SHOWN + "del acc\n", "used by more than"),
    "in a closure": (SHOWN.replace("print(f", "later = lambda: acc\n    print(f"), "used by more than"),
    "in a generator of the branch": (SHOWN.replace("print(f", "later = (acc for _ in x)\n    print(f"), "used by more"),
    "in a function": (SHOWN + "def show():\n    print(acc)\n", "used by more than"),
    "an attribute": (SHOWN.replace("acc =", "average.acc ="), "used by more than"),
    "an item": (SHOWN.replace("acc =", "kept[i] ="), "used by more than"),
    "no branch": ("acc = accuracy(out, y)  # <<\nprint(acc)\n", "used by more than"),
    "unused": ("acc = accuracy(out, y)  # <<\nif i % 5 == 0:\n    print(i)\n", "used by more than"),
    "two branches": (SHOWN + "if i == 3:\n    print(acc)\n", "may do more than to compute"),
    "a condition that draws": (SHOWN.replace("i % every == 0", "random.random() < 0.2"), "cannot be told"),
    "a condition of a length": (SHOWN.replace("i % every == 0", "i == len(batches)"), "cannot be told"),
    "a condition of a tensor": (SHOWN.replace("i % every == 0", "loss.item() < 1"), "cannot be told"),
    "a condition bound between": (SHOWN.replace("if i %", "every = 1\nif i %"), "cannot be told"),
    "a condition bound by a pattern": (
        SHOWN.replace("if i %", "match i:\n    case every:\n        pass\nif i %"), "cannot be told",
    ),
    "a condition bound by an error": (
        SHOWN.replace("if i %", "try:\n    pass\nexcept ValueError as i:\n    pass\nif i %"), "cannot be told",
    ),
    "an error that is caught": (
        "try:\n    acc = accuracy(out, y)  # <<\n    optimizer.step()\n    if i % 5 == 0:\n        print(acc)\n"
        "except ValueError:\n    pass\n", "an error in it might be caught by",
    ),
    "locals": (SHOWN + "print(sorted(locals()))\n", "locals may see"),
}  # fmt: skip


@pytest.mark.parametrize(("work", "reason"), LEFT.values(), ids=LEFT)
def test_what_somebody_would_notice_is_left(tmp_path, work, reason):
    after, left = cured(tmp_path, script(work))
    assert after == ""
    assert reason in left


# -- scripts in which somebody notices --------------------------------------------------------------------------------

LOOP = """
def steps(model, batches):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for i, (x, y) in enumerate(batches):
        out = model(x)
        optimizer.zero_grad()
        F.cross_entropy(out, y).backward()
        value = {work}  # <<
        optimizer.step()
        if i % 4 == 0:
            print("value", value)
"""
RUN = "model = nn.Linear(4, 3)\n{run}\nprint(model.weight.double().sum().item(), len(seen), torch.rand(1))\n"
PLAIN_RUN = "steps(model, data)"
BATCH = "out.view(25 if i % 4 == 1 else 24).mean().item()"
WATCHED = {
    "a caller that catches": ("", BATCH, "try:\n    steps(model, data)\nexcept RuntimeError:\n    print('skipped')"),
    "a caller that is given it": (
        "def safe(f, *given):\n    try:\n        f(*given)\n    except RuntimeError:\n        pass\n", BATCH,
        "safe(steps, model, data)",
    ),
    "a lambda": (
        "def safe(f):\n    try:\n        f()\n    except RuntimeError:\n        pass\n", BATCH,
        "safe(lambda: steps(model, data))",
    ),
    "a generator of calls": (
        "", BATCH,
        "runs = (steps(model, data) for _ in range(2))\ntry:\n    next(runs)\nexcept RuntimeError:\n    pass",
    ),
    "a context": (
        "import contextlib\n", BATCH, "with contextlib.suppress(RuntimeError):\n    steps(model, data)",
    ),
    "an end that goes on": (
        "", BATCH, "for _ in range(2):\n    try:\n        steps(model, data)\n    finally:\n        continue",
    ),
    "a thread": (
        "import threading\n", BATCH, "t = threading.Thread(target=steps, args=(model, data))\nt.start()\nt.join()",
    ),
    "a method found by name": (
        "class Runner:\n    def go(self):\n        steps(model, data)\n", BATCH,
        "try:\n    getattr(Runner(), 'go')()\nexcept RuntimeError:\n    pass",
    ),
    "a method found by a pattern": (
        "class Runner:\n    def go(self):\n        steps(model, data)\n", BATCH,
        "match Runner():\n    case Runner(go=g):\n"
        "        try:\n            g()\n        except RuntimeError:\n            pass",
    ),
    "a method of a thread": (
        "import threading\nclass Mixed:\n    def run(self):\n        steps(model, data)\n"
        "class Runner(Mixed, threading.Thread):\n    pass\n", BATCH, "r = Runner()\nr.start()\nr.join()",
    ),
    "an output by place": ("box = np.zeros(3)\n", "np.add(box, 1.0, box).sum()", "steps(model, data)\nprint(box)"),
    "an output by name": (
        "box = torch.zeros(3)\n", "torch.add(box, 1.0, out=box).sum()", "steps(model, data)\nprint(box)",
    ),
    "in place by a flag": ("box = torch.randn(9)\n", "F.relu(box, True).sum()", "steps(model, data)\nprint(box)"),
    "in place by a partition": (
        "box = np.random.randn(9)\n", "np.median(box, None, None, True)", "steps(model, data)\nprint(box)",
    ),
    "a sort in place": ("box = np.random.randn(9)\n", "box.sort()", "steps(model, data)\nprint(box)"),
    "a property": (
        "class Box:\n    @property\n    def size(self):\n        seen.append(1)\n        return 3\nbox = Box()\n",
        "box.size * 2", PLAIN_RUN,
    ),
    "an operator": (
        "class Box:\n    def __mul__(self, other):\n        seen.append(1)\n        return 3\nbox = Box()\n",
        "box * 2", PLAIN_RUN,
    ),
    "items": (
        "class Box:\n    def __getitem__(self, at):\n        seen.append(1)\n        return 3\nbox = Box()\n",
        "box[2]", PLAIN_RUN,
    ),
    "equality in a list": (
        "class Box:\n    def __eq__(self, other):\n        seen.append(1)\n        return True\nbox = Box()\n",
        "[box].count(3)", PLAIN_RUN,
    ),
    "parameters of its own": (
        "class Net(nn.Linear):\n    def parameters(self, recurse=True):\n        seen.append(1)\n"
        "        return super().parameters()\nnet = Net(4, 3)\n",
        "sum(p.norm() for p in net.parameters())", PLAIN_RUN,
    ),
    "parameters that are set": (
        "class Net(nn.Linear):\n    def __init__(self):\n        super().__init__(4, 3)\n"
        "        self.parameters = self.mine\n    def mine(self):\n        seen.append(1)\n"
        "        return [self.weight]\nnet = Net()\n", "sum(p.norm() for p in net.parameters())", PLAIN_RUN,
    ),
    "no model": (
        "class Box:\n    def parameters(self):\n        seen.append(1)\n        return []\nbox = Box()\n",
        "sum(p.norm() for p in box.parameters())", PLAIN_RUN,
    ),
    "an iterator": ("box = iter(range(99))\n", "sum(box)", PLAIN_RUN.replace("data)", "data)\nprint(len(list(box)))")),
    "a patched method": (
        "real = torch.Tensor.mean\ndef mean(self, *given):\n    seen.append(1)\n    return real(self, *given)\n"
        "torch.Tensor.mean = mean\n", "out.mean().item()", PLAIN_RUN + "\ntorch.Tensor.mean = real",
    ),
    "a patched class by another name": (
        "real, kind = torch.Tensor.mean, torch.Tensor\ndef mean(self, *given):\n    seen.append(1)\n"
        "    return real(self, *given)\nkind.mean = mean\n", "out.mean().item()", PLAIN_RUN + "\nkind.mean = real",
    ),
    "a patched module by a call": (
        "real = torch.mean\ndef mean(*given):\n    seen.append(1)\n    return real(*given)\n"
        "setattr(torch, 'mean', mean)\n", "torch.mean(out).item()", PLAIN_RUN + "\nsetattr(torch, 'mean', real)",
    ),
    "a patched tensor": (
        "class Net(nn.Linear):\n    def forward(self, x):\n        out = super().forward(x)\n"
        "        out.mean = lambda: seen.append(1) or 0.5\n        return out\n", "out.mean()",
        "net = Net(4, 3)\nsteps(net, data)",
    ),
    "a subclass of tensors": (
        "class Seen(torch.Tensor):\n    def mean(self):\n        seen.append(1)\n        return super().mean()\n"
        "class Net(nn.Linear):\n    def forward(self, x):\n        return super().forward(x).as_subclass(Seen)\n",
        "out.mean().item()", "net = Net(4, 3)\nsteps(net, data)",
    ),
    "a function that is wrapped": (
        "def counted(f):\n    def inner(*given):\n        seen.append(1)\n        return f(*given)\n    return inner\n"
        "accuracy = counted(accuracy)\n", "accuracy(out, y)", PLAIN_RUN,
    ),
    "a builtin that is bound": (
        "def float(x):\n    seen.append(1)\n    return 1\n", "float(out.mean())", PLAIN_RUN,
    ),
    "hooks on saved tensors": (
        "def pack(x):\n    seen.append(1)\n    return x\n", "(out * out).sum().item()",
        "with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):\n    steps(model, data)",
    ),
    "hooks entered by hand": (
        "def pack(x):\n    seen.append(1)\n    return x\n", "(out * out).sum().item()",
        "g = torch.autograd.graph\nhooks = g.saved_tensors_hooks(pack, lambda x: x)\nhooks.__enter__()\n"
        "steps(model, data)\nhooks.__exit__()",
    ),
    "a mode of functions": (
        "from torch.overrides import TorchFunctionMode\nclass Mode(TorchFunctionMode):\n"
        "    def __torch_function__(self, f, types, args=(), kwargs=None):\n        seen.append(1)\n"
        "        return f(*args, **kwargs or {})\nmode = Mode()\nmode.__enter__()\n", "out.mean().item()",
        PLAIN_RUN + "\nmode.__exit__(None, None, None)",
    ),
    "warnings that are collected": (
        "import warnings\ndef note(*given, **named):\n    seen.append(1)\nwarnings.simplefilter('always')\n"
        "warnings.showwarning = note\n", "np.mean(np.zeros(0))", PLAIN_RUN,
    ),
    "errors of arrays that are counted": (
        "np.seterrcall(lambda *given: seen.append(1))\nnp.seterr(all='call')\n", "np.log(np.zeros(2)).sum()",
        PLAIN_RUN + "\nnp.seterr(all='warn')",
    ),
    "a frame": (
        "import sys\nclass Net(nn.Linear):\n    def forward(self, x):\n"
        "        seen.append(sys._getframe(3).f_locals.get('value'))\n        return super().forward(x)\n",
        "out.mean().item()", "net = Net(4, 3)\nsteps(net, data)\nprint(seen)",
    ),
    "an object's end": (
        "class Tag:\n    def __del__(self):\n        print('end')\nclass Net(nn.Linear):\n    def forward(self, x):\n"
        "        out = super().forward(x)\n        out.tag = Tag()\n        return out\n", "out.view(-1)",
        "net = Net(4, 3)\nsteps(net, data)",
    ),
    "memory that NumPy has seen and that is to be larger": (
        "", "x.numpy().max()",
        "steps(model, data)\nfor x, _ in data:\n    try:\n        x.resize_(9, 4)\n    except RuntimeError:\n"
        "        seen.append(1)",
    ),
    "a library that is not known": ("import gc\n", "out.mean().item()", PLAIN_RUN),
    "all names of another file": ("from math import *\n", "out.mean().item()", PLAIN_RUN),
}  # fmt: skip


@pytest.mark.parametrize(("before", "work", "run"), WATCHED.values(), ids=WATCHED)
def test_nobody_notices(tmp_path, before, work, run):
    text = HEAD + before + LOOP.replace("{work}", work) + RUN.replace("{run}", run)
    after, left = cured(tmp_path, text)
    assert bool(after) != bool(left)
    if after:  # what is asked when it runs says that it is not known
        assert result_of(text) == result_of(after)
    else:
        plain = HEAD + LOOP.replace("{work}", "out.mean().item()") + RUN.replace("{run}", PLAIN_RUN)
        assert cured(tmp_path, plain)[0], "nothing but what the script does may be in the way"


def result_of(text):
    """Return what a script prints, and the error that ends it."""
    printed, error = io.StringIO(), ""
    with contextlib.redirect_stdout(printed), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            exec(compile(text, "train.py", "exec"), {"__name__": "__main__"})
        except Exception as raised:
            error = repr(raised)
    return printed.getvalue(), error


def test_an_error_that_nobody_catches_comes_with_the_branch(tmp_path):
    text = HEAD + LOOP.replace("{work}", BATCH) + RUN.replace("{run}", PLAIN_RUN)
    after, left = cured(tmp_path, text)
    assert left == ""
    assert "is invalid for input of size 24" in result_of(text)[1]
    assert result_of(after)[1] == ""


# -- where names are shared -------------------------------------------------------------------------------------------


def test_a_name_of_the_module_that_a_function_reads_is_left(tmp_path):
    loop = "acc = 0\n\ndef f():\n    global acc\n    for i, (x, y) in enumerate(data):\n"
    text = HEAD + loop + "        acc = accuracy(x, y)  # <<\n        if i % 5 == 0:\n            print(acc)\nf()\n"
    assert "used by more than" in cured(tmp_path, text)[1]
    show = "def show():\n    print(acc)\n\nfor i, (x, y) in enumerate(data):\n"
    text = HEAD + show + "    acc = accuracy(x, y)  # <<\n    if i % 5 == 0:\n        print(acc)\n"
    assert "used by more than" in cured(tmp_path, text)[1]


TOP = """
for i, (x, y) in enumerate(data):
    acc = accuracy(x, y)
    if i % 5 == 0:
        print('step', acc)
"""


def test_at_the_level_of_the_module(tmp_path):
    loop = TOP.replace("y)\n", "y)  # <<\n")
    after, left = cured(tmp_path, HEAD + loop)
    assert left == ""
    assert "    if i % 5 == 0 or type(x) is not torch.Tensor" in after
    assert output_of(HEAD + loop) == output_of(after)


def edits_of(project):
    line = next(at for at, each in enumerate(project.script.lines, 1) if each == "    acc = accuracy(x, y)")
    found = finding(code="HO001", location=Frame(str(project.script.path), line, "f"))
    edits = edits_for_findings(project, [found], [project.script.path.parent])
    return [each for each in edits if "branch" in each.edit.name]


def test_a_script_that_another_file_imports_is_left(tmp_path):
    assert edits_of(project_of(tmp_path, train=HEAD + "import other\n" + TOP, other="x = 1\n"))
    assert not edits_of(project_of(tmp_path, train=HEAD + "import other\n" + TOP, other="from train import acc\n"))
    assert not edits_of(project_of(tmp_path, train=HEAD + "import other\n" + TOP, other="import train\n"))


def test_a_function_of_another_file_is_read_there(tmp_path):
    counts = "n = []\ndef count(f):\n    def inner(*given):\n        n.append(1)\n        return f(*given)\n"
    counts += "    return inner\n"
    plain = "def score(out, y):\n    return (out.argmax(1) == y).float().mean().item()\n"
    text = HEAD + "from metrics import score\n" + TOP.replace("accuracy(x, y)", "score(x, y)")
    for other, number in ((plain, 1), (counts + plain + "score = count(score)\n", 0), (counts + "@count\n" + plain, 0)):
        project = project_of(tmp_path, train=text, metrics=other)
        line = next(at for at, each in enumerate(project.script.lines, 1) if "= score(x, y)" in each)
        found = finding(code="HO001", location=Frame(str(project.script.path), line, "f"))
        edits = edits_for_findings(project, [found], [tmp_path])
        assert len([each for each in edits if "branch" in each.edit.name]) == number


# -- from inside the function that does the work ----------------------------------------------------------------------


def test_the_line_of_a_function_leads_to_the_loop(tmp_path):
    text = (
        script(MOVED["a row of them"].replace("  # <<", ""))
        .replace("            cur.append(min(", "            # <<\n            cur.append(min(")
        .replace("            # <<\n            cur.append(", "            cur.append(  # <<\n                ")
    )
    after, left = cured(tmp_path, text)
    assert left == ""
    assert after.index("if i % 5 == 0 or") < after.index("per = distance(guess, truth)")
    assert output_of(text) == output_of(after)


METHODS = """
class Trainer:
    def __init__(self, model):
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def fit(self, batches):
        for i, (x, y) in enumerate(batches):
            out = self.model(x)
            loss = F.cross_entropy(out, y)
            self.optimizer.zero_grad()
            loss.backward()
            acc = accuracy(out, y)  # <<
            self.optimizer.step()
            if i % 4 == 0:
                print("step", i, acc)

trainer = Trainer(nn.Linear(4, 3))
trainer.fit(data)
print(sum(p.double().sum().item() for p in trainer.model.parameters()))
"""


def test_a_method_whose_calls_are_seen(tmp_path):
    after, left = cured(tmp_path, HEAD + METHODS)
    assert left == ""
    assert output_of(HEAD + METHODS) == output_of(after)
    for other in ("go = trainer.fit\n", "try:\n    trainer.fit(data)\nexcept ValueError:\n    pass\n"):
        assert "might be caught" in cured(tmp_path, HEAD + METHODS + other)[1]
    assert "might be caught" in cured(tmp_path, HEAD + METHODS.replace("Trainer:", "Trainer(Average):"))[1]


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
        "norm = norm_of(model)",
        "tops = [row.max().item() for row in out]\n        top = max(tops)",
        "draw = noisy(out)",
        "size = len(kept)",
        "kept.append(i)",
        "if count % 4 == 3:\n            continue",
        "if i % 3 == 0:\n            print('third', i)",
        "print('always', i)",
    ]
)
USES = st.lists(st.sampled_from(["acc", "ce", "per", "best", "meter", "rate", "draw", "size", "norm"]), max_size=4)
TESTS = st.sampled_from(
    ["i % 3 == 0", "count % 3 == 1", "i == len(kept)", "total > 5", "out.sum() > 0", "len(y) and i % 2"]
)
NAMES = ("acc", "ce", "per", "best", "meter", "rate", "draw", "size", "top", "norm")


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
