"""What findings change in a script: the lines that they name, where that leaves every weight as it was.

Modules: flatout.edits.detached_values, flatout.edits.finding_edit, flatout.edits.no_gradients.
"""

import ast
import difflib
from pathlib import Path
from textwrap import dedent

import pytest
from tests.unit.report.specimens import finding

from flatout.edits.finding_cures import EDITS, edits_for, edits_for_findings, edits_in_words, write_findings_in
from flatout.edits.reading.project import read_project
from flatout.rules.core.catalog import catalog
from flatout.schema.facts import Frame
from flatout.schema.trial import Equivalence

TRAINING = """\
import gc
import torch
from torch.nn import functional as F
for epoch in range(3):
    for x, y in loader:
        loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


def cured(folder: Path, code: str, text: str, **files: str):
    """Write what findings at the lines marked `# <<` ask for; return the changed lines and the outcomes."""
    for name, module in {"train": text, **files}.items():
        (folder / f"{name}.py").write_text(module)
    project = read_project(folder / "train.py", folder, folder)
    places = [(each.path, at) for each in project.sources for at, line in enumerate(each.lines, 1) if "# <<" in line]
    found = [finding(code=code, fixes=(), location=Frame(str(path), line, "f")) for path, line in places]
    after, outcomes = write_findings_in(project, found, recorded=project)
    changed = []
    for old, new in zip(project.sources, after.sources, strict=True):
        ast.parse(new.code)
        lines = difflib.unified_diff(old.lines, new.lines, lineterm="", n=0)
        changed += [line for line in lines if line[:3] not in ("---", "+++") and line[:2] != "@@"]
    return [line.replace("  # <<", "") for line in changed], outcomes


def test_every_edit_is_of_a_rule():
    named = {name for rule in catalog() for name, *_ in rule.edits}
    assert named == set(EDITS)
    assert all(len(edits_for(rule.code)) == len(rule.edits) for rule in catalog())


def test_what_is_written_without_a_trial_leaves_every_bit():
    assert all(edit.equivalence is Equivalence.BITWISE for edit in EDITS.values() if not edit.needs_trial)
    assert all(edit.words for edit in EDITS.values() if edit.needs_trial)


# -- edits that a trial has to confirm ------------------------------------------------------------------------------

TWO = "    a.backward(retain_graph=True)\n    b.backward()  # <<\n"


def test_an_edit_that_a_trial_has_to_confirm_is_not_written(tmp_path):
    changed, (outcome,) = cured(tmp_path, "CO025", TRAINING + TWO)
    assert changed == []
    assert outcome.left == (
        "`flatout tune` tries it (one backward pass for several losses, ROUNDING); `flatout patch` writes what is kept",
    )


def test_each_edit_of_a_finding_is_a_candidate_of_its_own(tmp_path):
    text = """\
import torch
d, g = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
od, og = torch.optim.Adam(d.parameters()), torch.optim.Adam(g.parameters())
for x in data:
    fake = g(x)
    loss = d(fake).mean()
    loss.backward()
    od.step()
"""
    (tmp_path / "train.py").write_text(text)
    project = read_project(tmp_path / "train.py", tmp_path, tmp_path)
    place = Frame(str(tmp_path / "train.py"), 7, "f")
    found = edits_for_findings(project, [finding(code="CO026", location=place)], [tmp_path])
    assert [each.edit.name for each in found] == [
        "CO026 the other network's output detached (train.py:7)",
        "CO026 gradients of what the optimizer holds alone (train.py:7)",
    ]
    detached = "fake.detach() if isinstance(fake, torch.Tensor) else fake"
    assert f"+    loss = d({detached}).mean()" in found[0].edit.diff
    assert {(each.equivalence, each.weakest) for each in found} == {(Equivalence.BITWISE, None)}
    assert edits_for_findings(project, [finding(code="CO025", location=place)], [tmp_path]) == []


def test_what_edits_do_is_said_with_their_class():
    rules = {rule.code: rule for rule in catalog()}
    assert edits_in_words(rules["HO004"]) == ["gc.collect left out (BITWISE)"]
    assert edits_in_words(rules["CO020"]) == [
        "the indices of max() or min() (BITWISE)", "the reduction by sums (ROUNDING)"
    ]  # fmt: skip
    assert edits_in_words(rules["CO003"]) == edits_in_words(rules["IN006"]) == []


PENALTY = """\
def penalty(x):
    (g,) = torch.autograd.grad(net(x).sum(), x, create_graph=True)  # <<
    return g.square().mean()
for x in data:
    (net(x).mean() + penalty(x)).backward()
"""


def test_an_edit_on_request_says_how_to_request_it(tmp_path):
    changed, (outcome,) = cured(tmp_path, "CO028", f"import torch\n{PENALTY}")
    assert changed == []
    assert outcome.left == (
        "`flatout tune --also CO028` tries it (the penalty every 8th time, times 8, SEMANTIC); "
        "`flatout patch` writes what is kept",
    )
    rules = {rule.code: rule for rule in catalog()}
    assert edits_in_words(rules["CO024"]) == ["the hook returns at once (BITWISE, on request)"]


# -- validation without gradients -----------------------------------------------------------------------------------

EVALUATE = """
def evaluate(model, loader):
    model.eval()
    total = 0.0
    for x, y in loader:
        total += F.mse_loss(model(x), y)  # <<
    return total / len(loader)
"""


def test_a_function_that_evaluates_gets_a_decorator(tmp_path):
    text = TRAINING + EVALUATE + "    print(evaluate(model, test).item())\n"
    changed, (outcome,) = cured(tmp_path, "EP002", text)
    assert changed == ["+@torch.no_grad()"]
    assert (outcome.changed, outcome.left) == (1, ())
    again, (outcome,) = cured(tmp_path, "EP002", text.replace("\ndef eval", "\n@torch.no_grad()\ndef eval"))
    assert (again, outcome.there) == ([], 1)


def test_the_line_that_calls_it_will_do(tmp_path):
    text = TRAINING.replace("for epoch", dedent(EVALUATE).replace("  # <<", "") + "\n\nfor epoch")
    changed, _ = cured(tmp_path, "EP002", text + "    print(float(evaluate(model, test)))  # <<\n")
    assert changed == ["+@torch.no_grad()"]


def test_a_method_keeps_its_decorators_and_a_module_gets_its_import(tmp_path):
    module = """\
class Task:
    # how good it is
    @staticmethod
    def evaluate(model, loader):
        right = 0
        for x, y in loader:
            right += (model(x) == y).sum()  # <<
        return right
"""
    changed, _ = cured(tmp_path, "EP002", "import task\n" + TRAINING, task=module)
    assert sorted(changed) == ["+    @torch.no_grad()", "+import torch"]


def test_a_loop_beside_the_training_is_put_under_a_block(tmp_path):
    loop = """\
    # how good it is
    for x, y in test:
        loss = F.mse_loss(model(x), y)  # <<
        total += loss
    print(f"{total:.3f}")
"""
    changed, (outcome,) = cured(tmp_path, "EP002", TRAINING + loop)
    assert changed == [
        *("-    for x, y in test:", "-        loss = F.mse_loss(model(x), y)", "-        total += loss"),
        "+    with torch.no_grad():",
        *("+        for x, y in test:", "+            loss = F.mse_loss(model(x), y)", "+            total += loss"),
    ]
    assert outcome.left == ()


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        (
            "    for x, y in test:\n        total += model(x)  # <<\n",
            "    total.backward()\n",
            "may be used in a backward",
        ),
        (
            "    for x, y in test:\n        kept.append(model(x))  # <<\n",
            "    sum(kept).backward()\n",
            "may be used in a",
        ),
        (
            "    for x, y in test:\n        kept.append(model(x))  # <<\n",
            "    mean = sum(kept)\n    loss = mean + 1\n    loss.backward()\n",
            "may be used in a backward",
        ),
        ("    print(model(x))  # <<\n", "", "is not found there"),
        ("    for x, y in test:\n        attack(x)\n        x.grad = model(x)  # <<\n", "", "is not found there"),
    ],
)
def test_what_may_need_its_gradients_is_left(tmp_path, before, after, reason):
    attack = "def attack(x):\n    model(x).sum().backward()\n"
    changed, (outcome,) = cured(tmp_path, "EP002", attack + TRAINING + before + after)
    assert changed == []
    assert reason in outcome.left[0]


@pytest.mark.parametrize(
    "loop",
    [
        "    for x, y in test:\n        out = model(x)  # <<\n        print(out)\n",
        "    for x, y in test:\n        store[0] = model(x)  # <<\n    again(store)\n",
        "    for x, y in test:\n        out = model(x)  # <<\n        seen = out.requires_grad\n",
        "    for x, y in test:\n        note(model(x))  # <<\n    learn(extra)\n",
        "    for x, y in test:\n        with torch.enable_grad():\n            out = model(x)  # <<\n",
        "    for x, y in test:\n        hits += derive(model, x)  # <<\n",
        "    for x, y in test:\n        hits += Memory()(x).item()  # <<\n",
    ],
)
def test_what_does_more_than_to_read_numbers_is_left(tmp_path, loop):
    before = """\
from torch.autograd import grad as d
store = [0]
def derive(model, x):
    return d(model(x).sum(), x)[0].item()
extra = []
def note(out):
    extra.append(out * 2)
class Memory:
    def __call__(self, x):
        self.last = model(x)
        return self.last.sum()
"""
    if "Memory" not in loop:
        before = before[: before.index("class")]
    changed, (outcome,) = cured(tmp_path, "EP002", before + TRAINING + loop)
    assert changed == []
    assert outcome.left


@pytest.mark.parametrize("more", ["print(evaluate.__code__.co_name)\n", "@timed\n"])
def test_a_function_that_is_wrapped_or_looked_into_is_left(tmp_path, more):
    function = dedent(EVALUATE).strip()
    text = f"{more}{function}\n" if more.startswith("@") else f"{function}\n{more}"
    changed, _ = cured(tmp_path, "EP002", f"{TRAINING}{text}hits = evaluate(model, test).item()\n")
    assert changed == []


@pytest.mark.parametrize(
    "use", ["    loss = evaluate(model, test) + 1\n    loss.backward()\n", "    evaluate(model, test).backward()\n"]
)
def test_a_function_whose_result_is_trained_on_is_left(tmp_path, use):
    changed, (outcome,) = cured(tmp_path, "EP002", "from torch.nn import functional as F\n" + EVALUATE + TRAINING + use)
    assert changed == []
    assert "what it returns may be used in a backward pass" in outcome.left[0]


def test_what_an_object_keeps_is_looked_for_wherever_something_is_trained(tmp_path):
    text = """\
class Task:
    def look(self):
        for x, y in self.test:
            self.penalty += self.model(x)  # <<

    def train(self):
        for x, y in self.loader:
            loss = self.model(x) + self.penalty
            loss.backward()
"""
    changed, (outcome,) = cured(tmp_path, "EP002", text)
    assert (changed, outcome.changed) == ([], 0)
    assert "may be used in a backward pass" in outcome.left[0]
    changed, _ = cured(tmp_path, "EP002", text.replace(" + self.penalty", ""))
    assert "+    @torch.no_grad()" in changed
    changed, (outcome,) = cured(tmp_path, "ME001", text)
    assert "may be used in a backward pass" in outcome.left[0]


def test_a_method_that_only_switches_the_model_is_cured(tmp_path):
    text = """\
class Task:
    def evaluate(self):
        self.model.eval()
        for x, y in self.test:
            right += (self.model(x) == y).sum().item()  # <<
        return right

    def train(self):
        self.model.train()
        for x, y in self.loader:
            loss = F.mse_loss(self.model(x), y)
            loss.backward()
            self.right = self.evaluate()
"""
    changed, (outcome,) = cured(tmp_path, "EP002", "import torch\n" + text)
    assert (changed, outcome.left) == (["+    @torch.no_grad()"], ())


# -- kept without its graph -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "instead"),
    [
        ("total += loss", "total += loss.detach()"),
        ("self.total += 2 * loss", "self.total += (2 * loss).detach()"),
        ("total = total + loss", "total = total + loss.detach()"),
        ("losses.append(loss)", "losses.append(loss.detach())"),
        ("log['loss'] = loss", "log['loss'] = loss.detach()"),
        ("losses.append(F.l1_loss(x, y))", "losses.append(F.l1_loss(x, y).detach())"),
    ],
)
def test_a_total_or_a_list_keeps_no_graph(tmp_path, line, instead):
    training = f"log = {{}}\n{TRAINING}"
    changed, (outcome,) = cured(tmp_path, "ME001", f"{training}        {line}  # <<\n")
    assert changed == [f"-        {line}", f"+        {instead}"]
    assert (outcome.changed, outcome.left) == (1, ())
    again, (outcome,) = cured(tmp_path, "ME001", f"{TRAINING}        {instead}  # <<\n")
    assert (again, outcome.there) == ([], 1)


def test_another_attribute_that_is_trained_on_does_not_matter(tmp_path):
    text = TRAINING.replace("loss.backward()", "self.scaler.scale(loss).backward()")
    changed, _ = cured(tmp_path, "ME001", f"{text}        self.total += loss  # <<\n")
    assert changed[1:] == ["+        self.total += loss.detach()"]


def test_what_is_stacked_later_are_tensors(tmp_path):
    monitor = "class Monitor:\n    def keep(self, one):\n        self.kept.append(one)  # <<\n"
    later = "    def spread(self):\n        return torch.stack(self.kept).std()\n"
    changed, _ = cured(tmp_path, "ME001", TRAINING + monitor + later)
    assert changed[1:] == ["+        self.kept.append(one.detach())"]
    changed, (outcome,) = cured(tmp_path, "ME001", TRAINING + monitor)
    assert changed == []
    assert "one may not be a single tensor" in outcome.left[0]


@pytest.mark.parametrize("after", ["    total.backward()\n", "    loss = total / 3\n    loss.backward()\n"])
def test_what_is_trained_on_keeps_its_graph(tmp_path, after):
    changed, (outcome,) = cured(tmp_path, "ME001", f"{TRAINING}        total += loss  # <<\n{after}")
    assert changed == []
    assert "may be used in a backward pass" in outcome.left[0]


@pytest.mark.parametrize(
    ("line", "use"),
    [
        ("total += loss", "    print(total)\n"),
        ("losses.append(loss)", "    hooks = [each.grad_fn for each in losses]\n"),
        ("losses.append(loss)", "    assert losses[-1] is loss\n"),
        ("losses.append(loss)", "    report(losses)\n"),
        ("log['loss'] = loss", "    text = f'{log}'\n"),
        ("self.total += loss", "    learn(vars(self)['total'])\n"),
    ],
)
def test_what_shows_that_a_graph_is_gone_is_seen(tmp_path, line, use):
    start = "log = {}\nlosses = []\n"
    changed, (outcome,) = cured(tmp_path, "ME001", f"{start}{TRAINING}        {line}  # <<\n{use}")
    assert changed == []
    assert outcome.left


def test_a_loss_that_is_a_number_at_times_is_left(tmp_path):
    lines = "        if epoch:\n            loss = float(loss)\n        total += loss  # <<\n"
    changed, (outcome,) = cured(tmp_path, "ME001", TRAINING + lines)
    assert changed == []
    assert "may not be a single tensor" in outcome.left[0]


def test_a_state_that_is_carried_on_is_left(tmp_path):
    changed, (outcome,) = cured(tmp_path, "ME001", f"{TRAINING}        state = model(x, state)  # <<\n")
    assert changed == []
    assert "the line does not show" in outcome.left[0]


# -- calls taken out ------------------------------------------------------------------------------------------------


def test_calls_that_the_loop_is_better_without_are_taken_out(tmp_path):
    text = TRAINING + "        gc.collect()  # <<\n        if epoch:\n            gc.collect()  # <<\n"
    changed, outcomes = cured(tmp_path, "HO004", text)
    assert changed == ["-        gc.collect()", "-            gc.collect()", "+            pass"]
    assert [each.changed for each in outcomes] == [1, 1]
    changed, _ = cured(tmp_path, "SY002", TRAINING + "        torch.cuda.synchronize()  # <<\n")
    assert changed == ["-        torch.cuda.synchronize()"]


@pytest.mark.parametrize("line", ["freed = gc.collect()", "collect()", "gc.collect(); print(1)"])
def test_a_line_that_does_more_is_left(tmp_path, line):
    changed, (outcome,) = cured(tmp_path, "HO004", f"{TRAINING}        {line}  # <<\n")
    assert changed == []
    assert outcome.left


# -- what cannot be done, and what comes together -----------------------------------------------------------------


def test_a_finding_without_an_edit_is_said_in_its_own_words(tmp_path):
    changed, (outcome,) = cured(tmp_path, "CO013", TRAINING + "    print(1)  # <<\n")
    assert changed == []
    assert outcome.left[0].startswith("62% of each step")
    project = read_project(tmp_path / "train.py", tmp_path, tmp_path)
    nowhere = finding(code="HO004", location=None, fixes=("gc-control",))
    (outcome,) = write_findings_in(project, [nowhere], recorded=project)[1]
    assert outcome.left[0].endswith("`flatout tune` tries gc-control.")


def test_lines_are_found_again_behind_changes_made_before(tmp_path):
    text = TRAINING + "        total += loss  # <<\n        losses.append(loss)  # <<\n"
    (tmp_path / "train.py").write_text(text)
    project = read_project(tmp_path / "train.py", tmp_path, tmp_path)
    moved = project.with_code(project.script.path, b"import os\nimport sys\n" + project.script.code)
    places = [Frame(str(project.script.path), line, "f") for line in (10, 11)]
    found = [finding(code="ME001", fixes=(), location=place) for place in places]
    after, outcomes = write_findings_in(moved, found, recorded=project)
    assert [each.changed for each in outcomes] == [1, 1]
    assert after.script.code.count(b".detach()") == 2


def test_what_a_fix_of_the_recipe_does_is_passed_over(tmp_path):
    (tmp_path / "train.py").write_text(TRAINING)
    project = read_project(tmp_path / "train.py", tmp_path, tmp_path)
    found = [finding(code="IN003", fixes=("compiled-input", "loader-workers"))]
    assert write_findings_in(project, found, recorded=project, done_by=["compiled-input"]) == (project, ())
    assert write_findings_in(project, found, recorded=project)[1][0].left


def test_a_place_outside_of_what_is_read_is_said(tmp_path):
    (tmp_path / "train.py").write_text(TRAINING)
    project = read_project(tmp_path / "train.py", tmp_path, tmp_path)
    (outcome,) = write_findings_in(project, [finding(code="EP002", fixes=())], recorded=project)[1]
    assert "in no file that flatout reads" in outcome.left[0]
