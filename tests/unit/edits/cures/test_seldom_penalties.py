"""A penalty on gradients, computed every eighth time."""

import pytest
from tests.unit.edits.scripts import edited

HEAD = "import torch\n"
FUNCTION = """\
def penalty(net, x):
    x.requires_grad_()
    (g,) = torch.autograd.grad(net(x).sum(), x, create_graph=True)  # <<
    return (g.norm(2, 1) - 1).square().mean()
"""
LOOP = "for x in data:\n    loss = net(x).mean() + 10 * penalty(net, x)\n    loss.backward()\n"


def seldom(folder, text):
    return edited(folder, "seldom-penalty", HEAD + text)


def test_the_call_is_made_every_eighth_time(tmp_path):
    after, left = seldom(tmp_path, FUNCTION + LOOP)
    assert left == ""
    call = "(8 * penalty(net, x) if next(penalty_turns) % 8 == 0 else torch.zeros(()))"
    changed = LOOP.replace("penalty(net, x)", call)
    assert after.replace("import itertools\n", "") == (
        HEAD + FUNCTION.replace("  # <<", "") + "penalty_turns = itertools.count()\n" + changed
    )


def test_it_runs_and_adds_up_to_as_much(tmp_path):
    made = "net, data, found = torch.nn.Linear(3, 1), [torch.ones(2, 3) for _ in range(16)], []\n"
    loop = "for x in data:\n    found.append(penalty(net, x).detach())\n"
    after, _ = seldom(tmp_path, FUNCTION + made + loop)
    spaces = [{}, {}]
    for text, space in zip((HEAD + FUNCTION + made + loop, after), spaces, strict=True):
        exec("import torch\ntorch.manual_seed(0)\n" + text, space)
    plain, changed = (sum(float(each) for each in space["found"]) for space in spaces)
    assert plain == pytest.approx(changed)
    assert sum(float(each) != 0 for each in spaces[1]["found"]) == 2


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("for x in data:\n    (g,) = torch.autograd.grad(y, x, create_graph=True)  # <<\n", "no function of its own"),
        (FUNCTION + LOOP + "show(penalty(net, x))\n", "is called at 2 places"),
        (FUNCTION, "is called at 0 places"),
        (FUNCTION + "penalty(net, x)\n", "not used as one number"),
        (FUNCTION + "a, b = penalty(net, x)\n", "more than one number"),
        (FUNCTION.replace("return (", "return x, (") + LOOP, "does more than to give back"),
        (FUNCTION.replace("    return", "    g.sum().backward()\n    return") + LOOP, "does more than to give back"),
        ("class N:\n    def forward(self, x):\n        return torch.autograd.grad(x, x, create_graph=True)  # <<\n",
         "does more than"),
    ],
)  # fmt: skip
def test_what_is_no_function_called_once_is_left(tmp_path, text, reason):
    after, left = seldom(tmp_path, text)
    assert after == ""
    assert reason in left
