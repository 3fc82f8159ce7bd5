"""A growing tensor, collected in a list and joined once: where nothing reads it or changes its pieces meanwhile."""

import pytest
from tests.unit.edits.scripts import edited, same_results

GROWS = """\
import torch
def gather(batches):
    seen = torch.empty(0, 3)
    for x in batches:
        y = x * 2
        seen = torch.cat([seen, y], dim=0)  # <<
    return seen
found = gather([torch.ones(2, 3), torch.zeros(4, 3), torch.empty(0, 3)])
"""


def made(folder, text):
    return edited(folder, "collect", text)


def test_pieces_are_collected_and_joined_behind_the_loop(tmp_path):
    after, left = made(tmp_path, GROWS)
    assert left == ""
    assert "    seen_pieces = []\n    for x in batches:\n" in after
    assert "        added_to_seen = [y]\n        if seen_pieces and all(type(each) is type(seen_pieces[0]) is " in after
    assert "            seen_pieces.extend([each.clone() for each in added_to_seen])\n        else:\n" in after
    assert (
        "            seen = torch.cat([*seen_pieces, *added_to_seen] if seen_pieces else [seen, *added_to_seen], dim=0)"
        in after
    )
    assert "    if len(seen_pieces) > 1:\n        seen = torch.cat(seen_pieces, dim=0)\n    return seen" in after
    same_results(GROWS, after, "found")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("[seen, y], dim=0", "(seen, y)"),
        ("torch.cat([seen, y], dim=0)", "torch.concat([seen, y, y], 0)"),
        ("for x in batches:", "i = 0\n    while i < len(batches):\n        x = batches[i]; i += 1"),
        ("[torch.ones", "[][:0] + 0 * [torch.ones"),
        ("torch.ones(2, 3)", "torch.ones(2, 3, dtype=torch.float64)"),
        ("return seen", "return seen.sum()"),
        ("        seen = torch.cat", "        if len(x) > 1:\n            seen = torch.cat"),
        ("    return", "        y += 1\n    return"),
        ("    return", "        y.mul_(2)\n    return"),
        ("    return", "        y[:1] = 3\n    return"),
        ("    return", "        torch.add(y, 1, out=y)\n    return"),
        ("torch.empty(0, 3)\n", "torch.tensor([])\n"),
        ("[seen, y], dim=0", "[seen, y], dim=-2"),
    ],
)
def test_the_same_tensor_comes_out_to_the_bit(tmp_path, old, new):
    text = GROWS.replace(old, new, 1)
    after, left = made(tmp_path, text)
    assert left == ""
    same_results(text, after, "found")


def test_gradients_are_the_same_to_the_bit(tmp_path):
    text = GROWS.replace("[torch.ones(2, 3)", "[torch.ones(2, 3, requires_grad=True)").replace("found =", "whole =")
    text = text.replace("gather([", "gather(parts := [") + "whole.square().sum().backward()\nfound = [parts[0].grad]\n"
    same_results(text, made(tmp_path, text)[0], "found")


def test_a_finding_at_the_loop_itself_will_do_and_arrays_too(tmp_path):
    text = GROWS.replace("  # <<", "").replace("in batches:", "in batches:  # <<")
    assert "seen_pieces.extend([each.clone() for each in added_to_seen])" in made(tmp_path, text)[0]
    text = GROWS.replace("import torch\n", "import numpy as np\nimport torch\n").replace(
        "torch.cat([seen, y], dim=0)", "np.concatenate((seen, y), axis=0)"
    )
    assert "seen = np.concatenate(seen_pieces, axis=0)" in made(tmp_path, text)[0]


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("        y =", "        print(seen.sum())\n        y =", "seen is read or bound in the loop"),
        ("        y =", "        if len(x) > 9: return seen\n        y =", "seen is read or bound in the loop"),
        ("        y =", "        if len(x) > 9: return None\n        y =", "may be left before its end"),
        ("        y =", "        yield x\n        y =", "may be left before its end"),
        ("    seen = torch.empty(0, 3)\n", "", "no line above the loop binds seen"),
        ("    seen = torch.empty(0, 3)\n", "    seen = None\n", "no line above the loop binds seen"),
        ("[seen, y]", "[y, seen]", "is not found here"),
        ("[seen, y]", "[seen, *y]", "is not found here"),
        ("dim=0", "dim=x.dim() - 2", "is not found here"),
        ("    seen = t", "    global seen\n    seen = t", "a name of other functions"),
        ("    for x", "    def look():\n        return seen\n    for x", "read by a function that the loop may call"),
        (
            "        seen = torch.cat([seen, y], dim=0)  # <<",
            "        with torch.no_grad():\n            seen = torch.cat([seen, y], dim=0)  # <<",
            "a block around the line",
        ),
        ("    return", "    else:\n        print(1)\n    return", "stands in no loop"),
    ],
)
def test_what_somebody_may_see_before_the_end_is_left(tmp_path, old, new, reason):
    after, left = made(tmp_path, GROWS.replace(old, new, 1))
    assert after == ""
    assert reason in left


def test_a_line_in_no_loop_is_left(tmp_path):
    assert "stands in no loop" in made(tmp_path, "import torch\nx = f()\nx = torch.cat([x, y])  # <<\n")[1]


SHARED = {
    "an environment that gives out its own state": """
class Env:
    def __init__(self):
        self.state = np.zeros(3, dtype=np.float32)
    def step(self, action):
        self.state += action
        return self.state
def roll(env):
    track = np.zeros((1, 3), dtype=np.float32)
    for action in range(5):
        track = np.concatenate((track, env.step(action)[None]))  # <<
    return track
found = [torch.from_numpy(roll(Env()))]
""",
    "a generator that fills one buffer": """
def stream(buffer):
    for k in range(4):
        yield buffer.fill_(k)
def gather(batches):
    out = torch.tensor([])
    for x in batches:
        out = torch.cat((out, x.view(1, 2)))  # <<
    return out
found = [gather(stream(torch.zeros(2)))]
""",
    "the first tensor, written to meanwhile": """
start = torch.ones(1, 2)
def get():
    return start
def gather():
    out = get()
    for k in range(3):
        start.mul_(3)
        out = torch.cat([out, torch.full((1, 2), float(k))])  # <<
    return out
found = [gather()]
""",
    "no turns": """
base = torch.zeros(2, 2)
def pick(xs):
    out = base.view(2, 2)
    for x in xs:
        out = torch.cat([out, x])  # <<
    return out.add_(1)
pick([])
found = [pick([torch.ones(1, 2)]), base]
""",
    "types that grow": """
def gather(xs):
    out = xs[0].clone()
    for x in xs[1:]:
        out = torch.cat([out, x])  # <<
    return out
found = [gather([torch.tensor([16777217]), torch.ones(1), torch.ones(2), torch.ones(1).double(), torch.ones(1)])]
""",
    "a piece that does not fit": """
done = []
def gather(xs):
    out = torch.empty(0, 2)
    for x in xs:
        done.append(len(x))
        out = torch.cat([out, x])  # <<
    return out
try:
    gather([torch.ones(1, 2), torch.ones(2, 2), torch.ones(3, 3), torch.ones(4, 2)])
except RuntimeError:
    pass
found = [torch.tensor(done)]
""",
}


@pytest.mark.parametrize("name", SHARED)
def test_pieces_are_joined_as_they_were_when_they_were_added(tmp_path, name):
    text = "import torch\nimport numpy as np\n" + SHARED[name]
    after, left = made(tmp_path, text)
    assert left == ""
    same_results(text, after, "found")


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("    for x", "    sizes = (len(seen) for _ in batches)\n    for x", "read by a generator"),
        ("    for x", "    print(len(locals()))\n    for x", "`locals` may read seen"),
        ("import torch\n", "import torch\ntorch.set_grad_enabled(False)\n", "switches gradients"),
        ("import torch\n", "import torch\nall = 3\n", "a name of Python's own"),
    ],
)
def test_what_may_see_the_tensor_or_the_mode_is_left(tmp_path, old, new, reason):
    after, left = made(tmp_path, GROWS.replace(old, new, 1))
    assert after == ""
    assert reason in left


@pytest.mark.parametrize("head", ["try:", "with suppress(ValueError):", "class A:"])
def test_a_loop_whose_errors_may_be_seen_around_it_is_left(tmp_path, head):
    text = (
        f"import torch\n{head}\n    out = torch.zeros(1, 2)\n"
        f"    for x in xs:\n        out = torch.cat([out, x])  # <<\n"
    )
    after, left = made(tmp_path, text + ("finally:\n    print(out)\n" if head == "try:" else ""))
    assert after == ""
    assert "error" in left or "class" in left
