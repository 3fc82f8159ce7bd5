"""Deep copies of state dicts that are without effect: left out with the same bits, or kept with a reason.

Modules: flatout.edits.cures.state_uses
"""

import copy
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.edits.scripts import edited, same_results

HEAD = """\
import copy
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    def forward(self, x):
        return self.body(x)

def train(model, steps):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
    for _ in range(steps):
        model(torch.randn(5, 3)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

"""

AVERAGE = """
def average(target, model, d):
    new = copy.deepcopy(target.state_dict())
    old = copy.deepcopy(model.state_dict())
    for key in new:
        new[key] = d * old[key] + (1 - d) * new[key]  # <<
    target.load_state_dict(new)

one, two = Net(), Net()
for _ in range(3):
    train(one, 2)
    average(two, one, 0.9)
"""

CLASS = """
class Teacher:
    def __init__(self, model, decay):
        self.model, self.teacher, self.decay, self.updates = model, copy.deepcopy(model), decay, 0

    def update(self):
        \"\"\"Follow the student.\"\"\"
        mine = copy.deepcopy(self.model.state_dict())  # the student's
        with torch.no_grad():
            self.updates += 1
            decay = min(self.decay, (1 + self.updates) / (10 + self.updates))
            theirs = {name: value.clone() for name, value in self.teacher.state_dict().items()}
            for (name, value), other in zip(theirs.items(), mine.values()):
                if value.dtype.is_floating_point:
                    value = value.lerp(other.to(value.dtype), 1 - decay)
                theirs[name] = value
            self.teacher.load_state_dict(theirs)

one = Net()
teacher = Teacher(one, 0.99)
for _ in range(3):
    train(one, 2)
    teacher.update()  # <<
two = teacher.teacher
"""

AT_ONCE = (
    """
def targets(target, online, step):
    if step % 2 == 0:
        target.load_state_dict(copy.deepcopy(online.state_dict()), strict=True)  # <<

one, two = Net(), Net()
print(list(one.named_parameters())[0][0], len(list(two.parameters())))
for step, online in enumerate([one, one, one]):
    train(online, 1)
    targets(two, one, step)
""".replace("print(", "(")
    .replace("online.state", "one.state")
    .replace("target.load", "two.load")
)

RESTORED = """
one, two = Net(), Net()
start = copy.deepcopy(one.state_dict())
for fold in range(3):
    one.load_state_dict(copy.deepcopy(start))  # <<
    train(one, 3)
"""

LOOKAHEAD = """
slow, fast = Net(), Net()
for turn in range(4):
\ttrain(fast, 3)
\tbefore = copy.deepcopy(slow.state_dict())
\tafter = copy.deepcopy(fast.state_dict())
\tfor key in before.keys():
\t\tbefore[key] = torch.lerp(before[key].float(), after[key].float(), 0.5)  # <<
\tslow.load_state_dict(before)
\tfast.load_state_dict(before)
one, two = slow, fast
"""


def copied(text):
    """Run a script, and return how many state dicts and weights it has copied."""
    number, plain, clone = [0], copy.deepcopy, torch.Tensor.clone

    def deepcopy(value, *memo):
        number[0] += hasattr(value, "_metadata")
        return plain(value, *memo)

    def cloned(tensor, **how):
        number[0] += sys._getframe(1).f_code.co_filename == "train.py"
        return clone(tensor, **how)

    copy.deepcopy, torch.Tensor.clone = deepcopy, cloned
    try:
        exec(compile(text, "train.py", "exec"), {})
    finally:
        copy.deepcopy, torch.Tensor.clone = plain, clone
    return number[0]


def made(folder, text):
    return edited(folder, "state-copies", HEAD + text)


@pytest.mark.parametrize(("text", "copies"), [(AVERAGE, 0), (CLASS, 0), (AT_ONCE, 0), (RESTORED, 1), (LOOKAHEAD, 0)])
def test_copies_are_left_out_and_the_bits_stay(tmp_path, text, copies):
    after, left = made(tmp_path, text)
    assert left == ""
    assert copied(after) == copies < copied(HEAD + text)
    same_results(HEAD + text, after, "one", "two")


@pytest.mark.parametrize("copied", ["copy.deepcopy(value)", "value.detach().clone()", "value.clone().detach()"])
def test_other_spellings_of_a_dictionary_of_copies(tmp_path, copied):
    after, _ = made(tmp_path, CLASS.replace("value.clone()", copied))
    line = "theirs = {name: value if apart else COPIED for name, value in self.teacher.state_dict().items()}\n"
    assert line.replace("COPIED", copied) in after and "            apart = weights_apart(self.teacher)\n" in after
    for other in ("value.clone().half()", "value.clone(memory_format=torch.channels_last)", "value.detach()"):
        assert made(tmp_path, CLASS.replace("value.clone()", other))[0] == ""
    renamed = made(tmp_path, CLASS.replace("{name: value.clone()", "{name.replace('0', '2'): value.clone()"))[0]
    assert renamed == ""


def test_all_else_stays_as_it_is_written(tmp_path):
    after, _ = made(tmp_path, CLASS)
    assert "        mine = self.model.state_dict()  # the student's\n" in after
    new = [line for line in after.split("\n") if line not in (HEAD + CLASS).split("\n")]
    assert len(new) == 23 and new[-3:-1] != new[:2]
    assert after.index("from torch import nn\n\n\ndef weights_apart(") < after.index("class Net")


@settings(max_examples=20, deadline=None)
@given(st.lists(st.sampled_from(["average(two, one, d)", "average(one, two, d)", "average(two, two, d)",
    "train(one, 1)", "train(two, 1)"]), max_size=5), st.floats(0, 1))  # fmt: skip
def test_whatever_is_averaged_when(tmp_path_factory, turns, d):
    text = AVERAGE.replace("    train(one, 2)\n", f"    d = {d!r}\n").replace(
        "    average(two, one, 0.9)\n", "".join(f"    {each}\n" for each in ["average(two, one, d)", *turns])
    )
    after, left = made(tmp_path_factory.mktemp("turns"), text)
    assert left == ""
    same_results(HEAD + text, after, "one", "two")


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("new[key] = d * old[key] + (1 - d) * new[key]", "new[key] += d * (old[key] - new[key])", "written into"),
        ("new[key] = d * old[key] + (1 - d) * new[key]", "new[key].mul_(1 - d).add_(d * old[key])", "written into"),
        ("new[key] = d * old[key] + (1 - d) * new[key]", "torch.add(new[key], old[key], out=new[key])", "written into"),
        ("new[key] = d * old[key] + (1 - d) * new[key]", "new[key][:] = d * old[key]", "written into"),
        ("new[key] = d * old[key]", "old[key] *= d; new[key] = old[key]", "old[key] *= d"),
        ("    target.load_state_dict(new)", "    target.load_state_dict(new)\n    return new, old", "handed on"),
        ("    target.load_state_dict(new)", "    target.load_state_dict(new)\n    kept.extend([new, old])",
         "handed on"),
        ("    target.load_state_dict(new)", "    target.kept, target.old = new, old", "handed on"),
        ("    target.load_state_dict(new)", "    target.load_state_dict(new, assign=True)", "assign=True"),
        ("    for key in new:", "    train(model, 1)\n    train(target, 1)\n    for key in new:", "train(model, 1)"),
        ("    for key in new:", "    def later():\n        return new, old\n    for key in new:",
         "outside of the block"),
        ("    for key in new:", "    for each in new.values():\n        each.zero_()\n    for key in new:",
         "written into"),
        ("    for key in new:", "    yield\n    for key in new:", "yield"),
        ("    for key in new:",
         "    for each in model.parameters():\n        each.data = each * 2\n    for key in new:",
         "parameters()"),
        ("    for key in new:", "    with model.other_weights():\n      for key in new:", "other_weights()"),
        ("    for key in new:", "    for key in hostile(new):", "handed on"),
        ("    for key in new:", "    model.body[0].weight[0] = 1\n    for key in new:", "weight[0] may change"),
        ("import copy", "import copy, threading\nthreading.Thread(target=print)", "threading is used here"),
        ("    def forward", "    def get_extra_state(self):\n        return self.kept\n    def forward",
         "_extra_state"),
        ("    def forward", "    def state_dict(self):\n        return self.kept\n    def forward",
         "is a name of the user"),
    ],
)  # fmt: skip
def test_what_may_be_needed_is_left(tmp_path, old, new, reason):
    text = (HEAD + AVERAGE).replace(old, new, 1)
    assert text != HEAD + AVERAGE
    after, left = edited(tmp_path, "state-copies", text)
    assert after == ""
    assert reason in left


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("    target.load_state_dict(new)", "    for _ in range(2):\n        target.load_state_dict(new)"),
        (
            "    target.load_state_dict(new)",
            "    for each in new.values():\n        each.size()\n    target.load_state_dict(new)\n    each.size()",
        ),
    ],
)
def test_one_copy_stays_and_the_other_goes(tmp_path, old, new):
    after, _ = edited(tmp_path, "state-copies", (HEAD + AVERAGE).replace(old, new, 1))
    assert "new = copy.deepcopy(target.state_dict())" in after
    assert "old = model.state_dict()" in after


def test_a_copy_that_is_read_after_its_model_was_loaded_stays_and_the_other_goes(tmp_path):
    text = AVERAGE.replace(
        "    target.load_state_dict(new)", "    target.load_state_dict(new)\n    model.load_state_dict(old)"
    )
    after, _ = made(tmp_path, text)
    assert "old = copy.deepcopy(model.state_dict())" in after
    assert "new = copy.copy(target.state_dict())" in after
    same_results(HEAD + text, after, "one", "two")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("best = copy.deepcopy(model.state_dict())  # <<\ntrain(model, 3)\nmodel.load_state_dict(best)\n", "train("),
        (
            "class Best:\n    def keep(self):\n        self.best = copy.deepcopy(self.model.state_dict())  # <<\n",
            "kept in",
        ),
        ("all_of = []\nall_of.append(copy.deepcopy(model.state_dict()))  # <<\n", "kept in something, or handed on"),
        ("def f():\n    return copy.deepcopy(model.state_dict())  # <<\n", "kept in something, or handed on"),
        ("state = model.state_dict()\nmodel.load_state_dict(copy.deepcopy(state))  # <<\n", "under other names"),
        (
            "state = copy.deepcopy(model.state_dict())\nstate['a'] = model.body[0].weight\n"
            "model.load_state_dict(copy.deepcopy(state))  # <<\n",
            "may be bound to others",
        ),
        ("x = copy.deepcopy(model)  # <<\n", "is not found here"),
    ],
)
def test_other_states_and_copies_for_later_are_left(tmp_path, text, reason):
    set_up = "model = Net()\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
    after, left = made(tmp_path, set_up + text)
    assert after == ""
    assert reason in left


def test_what_the_cure_relies_on():
    """A state_dict() is a new dictionary of references, and load_state_dict copies; an optimizer's keeps."""
    model = torch.nn.Linear(2, 2)
    state = model.state_dict()
    assert state is not model.state_dict() and state["weight"].data_ptr() == model.weight.data_ptr()
    other = torch.nn.Linear(2, 2)
    other.load_state_dict(state)
    assert other.weight.data_ptr() != model.weight.data_ptr() and torch.equal(other.weight, model.weight)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    kept = copy.copy(optimizer.state_dict())
    optimizer.load_state_dict(kept)
    held = optimizer.state[model.weight]["momentum_buffer"]
    assert held.data_ptr() == kept["state"][0]["momentum_buffer"].data_ptr()
