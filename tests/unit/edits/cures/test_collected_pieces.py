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
    assert after == GROWS.replace("  # <<", "").replace("    for x", "    seen_pieces = [seen]\n    for x").replace(
        "seen = torch.cat([seen, y], dim=0)", "seen_pieces.append(y)"
    ).replace("    return", "    seen = torch.cat(seen_pieces, dim=0)\n    return")
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
    assert "seen_pieces.append(y)" in made(tmp_path, text)[0]
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
        ("    return", "        y += 1\n    return", "y may be written to"),
        ("    return", "        y.mul_(2)\n    return", "y may be written to"),
        ("    return", "        y[0] = 3\n    return", "y may be written to"),
        ("    return", "        torch.add(y, 1, out=y)\n    return", "y may be written to"),
        ("    seen = torch.empty(0, 3)\n", "", "no line above the loop binds seen"),
        ("    seen = torch.empty(0, 3)\n", "    seen = None\n", "no line above the loop binds seen"),
        ("[seen, y]", "[y, seen]", "is not found here"),
        ("[seen, y]", "[seen, *y]", "is not found here"),
        ("dim=0", "dim=x.dim() - 2", "x is another one in each turn"),
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
