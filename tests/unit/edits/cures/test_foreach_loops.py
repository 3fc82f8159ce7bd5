"""Loops over tensors as `torch._foreach_` operations: bit by bit what the loop made, and the loops that are left.

Modules: flatout.edits.cures.foreach_loops, flatout.edits.cures.foreach_terms, flatout.edits.reading.writes.turn_order.
"""

import pytest
from tests.unit.edits.scripts import edited, same_results

START = """\
import torch
a, b = (torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Linear(7, 3)) for _ in range(2))
a(torch.randn(4, 5)).square().sum().backward()
b(torch.randn(4, 5)).square().sum().backward()
d, lr = 0.99, 0.1
found = [*a.parameters(), *b.parameters()]
grads = [p.grad for p in found]
"""
EMA = "with torch.no_grad():\n    for p, q in zip(a.parameters(), b.parameters()):\n        {}  # <<\n"
STEP = "with torch.no_grad():\n    for p in a.parameters():\n        {}  # <<\n"


def made(folder, text):
    return edited(folder, "foreach", text)


@pytest.mark.parametrize(
    ("form", "line", "written"),
    [
        (EMA, "q.data.mul_(d).add_(p.data, alpha=1 - d)", "torch._foreach_add_(all_q_data, all_p_data, alpha=1 - d)"),
        (EMA, "q.mul_(d).add_((1 - d) * p)", "torch._foreach_add_(all_q, torch._foreach_mul(all_p, 1 - d))"),
        (EMA, "q.lerp_(p, 1 - d)", "torch._foreach_lerp_(all_q, all_p, 1 - d)"),
        (EMA, "q.lerp_(p.detach(), weight=0.01)", "torch._foreach_lerp_(all_q, all_p_detach, 0.01)"),
        (EMA, "q.copy_(q * d + p * (1 - d))", "torch._foreach_copy_(all_q, torch._foreach_add("),
        (EMA, "q.data.copy_(d * q.data + (1 - d) * p.data)", "torch._foreach_copy_(all_q_data, "),
        (EMA, "q.copy_(p)", "torch._foreach_copy_(all_q, all_p)"),
        (EMA, "q.sub_((1 - d) * (q - p))", "torch._foreach_mul(torch._foreach_sub(all_q, all_p), 1 - d)"),
        (STEP, "p -= lr * p.grad", "torch._foreach_sub_(all_p, torch._foreach_mul(all_p_grad, lr))"),
        (STEP, "p.data.add_(p.grad, alpha=-lr)", "torch._foreach_add_(all_p_data, all_p_grad, alpha=-lr)"),
        (
            STEP,
            "p.sub_(p.grad.sign(), alpha=lr)",
            "torch._foreach_sub_(all_p, torch._foreach_sign(all_p_grad), alpha=lr)",
        ),
        (STEP, "p.grad.mul_(0.5)", "torch._foreach_mul_(all_p_grad, 0.5)"),
        (STEP, "p.grad.div_(3)", "torch._foreach_div_(all_p_grad, 3)"),
        (STEP, "p.grad.zero_()", "torch._foreach_zero_(all_p_grad)"),
        (STEP, "p.grad.clamp_(-0.1, 0.1)", "torch._foreach_clamp_max_(all_p_grad, 0.1)"),
        (STEP, "p.grad.clamp_(min=0)", "torch._foreach_clamp_min_(all_p_grad, 0)"),
        (
            STEP,
            "p.addcmul_(p.grad, p.grad, value=-lr)",
            "torch._foreach_addcmul_(all_p, all_p_grad, all_p_grad, value=-lr)",
        ),
        (STEP, "p.addcdiv_(p.grad, p.grad.abs() + 1, value=-lr)", "torch._foreach_addcdiv_(all_p, all_p_grad, "),
        (STEP, "p.grad += 0.01 * p", "torch._foreach_add_(all_p_grad, torch._foreach_mul(all_p, 0.01))"),
    ],
)
def test_every_form_is_the_loop_to_the_bit(tmp_path, form, line, written):
    text = START + form.format(line)
    after, left = made(tmp_path, text)
    assert left == ""
    assert written in after
    same_results(text, after, "found", "grads")


def test_lists_are_made_before_the_loop_and_used_behind_it(tmp_path):
    after, _ = made(
        tmp_path,
        "import torch\n@torch.no_grad()\ndef update(a, b, d):\n    all_q = 1\n"
        "    for p, q in zip(a.parameters(), b.parameters()):\n        q.mul_(d)\n"
        "        q.add_(p, alpha=1 - d)  # <<\n"
        "    return b\n",
    )
    assert after.startswith("import torch\n\n\ndef turns_apart(numbers, *lists):\n")
    assert after.endswith(
        "@torch.no_grad()\ndef update(a, b, d):\n    all_q = 1\n    all_q_2 = []\n    all_p = []\n"
        "    for p, q in zip(a.parameters(), b.parameters()):\n        all_q_2.append(q)\n        all_p.append(p)\n"
        "    if all_q_2 and turns_apart([d, 1 - d], all_q_2, all_p):\n        torch._foreach_mul_(all_q_2, d)\n"
        "        torch._foreach_add_(all_q_2, all_p, alpha=1 - d)\n"
        "    else:\n        for one_q_2, one_p in zip(all_q_2, all_p):\n            one_q_2.mul_(d)\n"
        "            one_q_2.add_(one_p, alpha=1 - d)\n"
        "    return b\n"
    )


OWN = """\
import torch
class Own(torch.optim.Optimizer):
    def __init__(self, params, lr):
        super().__init__(params, dict(lr=lr))
    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            lr = group["lr"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if len(state) == 0:
                    state["m"] = torch.zeros_like(p)
                    state["step"] = 0
                state["step"] += 1
                m = state["m"]
                m.mul_(0.9).add_(p.grad, alpha=0.1)  # <<
                p.add_(m.sign(), alpha=-lr)
net = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Linear(7, 3), torch.nn.Linear(7, 3))
own = Own(net.parameters(), 0.1)
for _ in range(4):
    own.zero_grad()
    net[:2](torch.randn(4, 5)).square().sum().backward()
    own.step()
"""


def test_an_optimizer_of_the_user_s_own_is_the_same_to_the_bit(tmp_path):
    after, left = made(tmp_path, OWN)
    assert left == ""
    assert "torch._foreach_add_(all_p, torch._foreach_sign(all_m), alpha=-lr)" in after
    same_results(OWN, after, "net")


def test_conditions_and_switched_off_gradients_inside_of_the_loop_stay(tmp_path):
    text = START + (
        "for p in a.parameters():\n    if p.dim() > 1:\n        with torch.no_grad():\n            p.mul_(0.5)  # <<\n"
    )
    after, _ = made(tmp_path, text)
    assert "        with torch.no_grad():\n            all_p.append(p)\n" in after
    assert (
        "with torch.no_grad():\n    if all_p and turns_apart([], all_p):\n        torch._foreach_mul_(all_p, 0.5)\n"
        in after
    )
    same_results(text, after, "found")


def test_no_tensors_are_no_error(tmp_path):
    text = START + "for p in torch.nn.ReLU().parameters():\n    p.data.mul_(2)  # <<\n"
    same_results(text, made(tmp_path, text)[0], "found")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (
            "for k, v in m.state_dict().items():\n    v.mul_(0.5)  # <<\n",
            "state_dict may give one tensor several times",
        ),
        (
            "for p in q:\n    p.grad.mul_(1 / norm(m))  # <<\ndef norm(m): pass\n",
            "1 / norm(m) may be something else in each turn",
        ),
        (
            "for p in m.parameters():\n    s = m(x)\n    p.grad.mul_(s)  # <<\n",
            "the loop does more",
        ),
        ("for p in ps:\n    s = sum(ps)\n    p.mul_(2)  # <<\n", "the loop does more"),
        ("for p in ps:\n    print(p)\n    p.mul_(2)  # <<\n", "the loop does more"),
        ("for p in ps:\n    self.n = p\n    p.mul_(2)  # <<\n", "the loop does more"),
        ("for p in ps:\n    p.mul_(2)  # <<\n    print(p)\n", "a loop that ends in changes of tensors"),
        ("for p in ps:\n    p.mul_(torch.rand(()))  # <<\n", "torch.rand(()) may be something else"),
        ("for p in ps:\n    p.mul_(next(scales))  # <<\n", "next(scales) may be something else"),
        ("for p in ps:\n    d = p - last\n    last = p\n    p.add_(d)  # <<\n", "the loop does more"),
        ("for p in ps:\n    if p.sum() > 0:\n        p.mul_(2)  # <<\n", "the loop does more"),
        ("for p in ps:\n    table[0] = p\n    p.mul_(2)  # <<\n", "the loop does more"),
        ("for p in ps:\n    g = flat[chosen]\n    p.add_(g)  # <<\n", "the loop does more"),
        ("for p in ps:\n    n = seen.append(see(p))\n    p.mul_(2)  # <<\n", "the loop does more"),
        ("def f(ps):\n    for p in ps:\n        got = yield p\n        p.mul_(2)  # <<\n", "ps may see"),
        ("def walk():\n    for p in q:\n        yield p\nfor p in walk():\n    p.mul_(2)  # <<\n", "walk() may see"),
        ("ps = (p.data for p in q)\nfor p in ps:\n    p.mul_(2)  # <<\n", "ps may see"),
        ("for p in ps:\n    p *= 2  # <<\nprint(p)\n", "p is read elsewhere"),
        ("try:\n    for p in ps:\n        p.mul_(2)  # <<\nexcept RuntimeError:\n    n = 1\n", "might be caught"),
        ("class T(torch.Tensor):\n    __torch_function__ = f\nfor p in ps:\n    p.mul_(2)  # <<\n", "may be watched"),
        ("for p in ps:\n    x = p.grad  # <<\n", "a loop that ends in changes of tensors"),
        ("for p in ps:\n    if p:\n        p.mul_(2)  # <<\n    print(p)\n", "the loop does more"),
        ("for p in ps:\n    if p:\n        p.mul_(2)  # <<\n    else:\n        p.add_(1)\n", "is not found here"),
        ("for p in ps:\n    total += p.norm()  # <<\n", "is none that torch._foreach_"),
        ("for p in ps:\n    p.mul_(p.norm())  # <<\n", "is none that torch._foreach_"),
        ("for p in ps:\n    s = lr[p]\n    p.add_(p.grad, alpha=s)  # <<\n", "the loop does more"),
        ("for p, s in ps:\n    p.add_(p.grad, alpha=s)  # <<\n", "is none that torch._foreach_"),
        ("for p in ps:\n    p.copy_(2)  # <<\n", "is none that torch._foreach_"),
        ("for p in ps:\n    p.add_(2, alpha=3)  # <<\n", "is none that torch._foreach_"),
        ("for p in ps:\n    p.copy_(1 - p)  # <<\n", "is none that torch._foreach_"),
        ("for p in ps:\n    p.normal_()  # <<\n", "is none that torch._foreach_"),
        ("for p in ps:\n    p.mul_(2)  # <<\nelse:\n    f()\n", "is not found here"),
        ("while f():\n    p.mul_(2)  # <<\n", "is not found here"),
        ("p.mul_(2)  # <<\n", "is not found here"),
        ("def f(p):\n    p.mul_(2)  # <<\n", "is not found here"),
    ],
)
def test_loops_whose_turns_may_depend_on_each_other_are_left(tmp_path, body, reason):
    after, left = made(tmp_path, "import torch\n" + body)
    assert after == ""
    assert reason in left


ODD = """\
import torch
import numpy as np
class Meter:
    n = 1
    def mul_(self, by):
        self.n = self.n * by
        return self
    add_ = mul_
shared = np.arange(6.0)
lists = {lists}
factor = {factor}
with torch.no_grad():
    for one, other in {walked}:
        one.mul_(factor).add_(other)  # <<
found = [each if isinstance(each, torch.Tensor) else torch.as_tensor(getattr(each, "n", each)) for each in lists]
"""


@pytest.mark.parametrize(
    ("lists", "factor", "walked"),
    [
        ("[torch.ones(3) * i for i in range(4)]", "0.5", "zip(lists[1:], lists)"),
        ("[torch.arange(4.)] * 3", "0.5", "zip(lists, lists)"),
        ("list(torch.arange(12.).unfold(0, 6, 3))", "0.5", "zip(lists, lists[::-1])"),
        ("[torch.tensor(2.0), torch.ones(3)]", "lists[0]", "zip(lists, [1, 2])"),
        ("[torch.from_numpy(shared), torch.from_numpy(shared[1:])]", "0.5", "zip(lists, [1, 2])"),
        ("[torch.from_numpy(shared[2:]), torch.from_numpy(shared)]", "0.5", "zip(lists, [1, 2])"),
        ("[torch.ones(2), torch.ones(2)]", "torch.tensor([0.5, 2.0])", "zip(lists, lists)"),
        ("[torch.ones(2), torch.ones(2)]", "np.float32(0.5)", "zip(lists, [1, torch.ones(2)])"),
        ("[Meter(), Meter()]", "3", "zip(lists, [2, 5])"),
        ("[torch.ones(2).to_sparse(), torch.ones(2).to_sparse()]", "3.0", "zip(lists, lists)"),
    ],
)
def test_turns_that_meet_and_what_is_no_tensor_are_changed_one_by_one(tmp_path, lists, factor, walked):
    text = ODD.format(lists=lists, factor=factor, walked=walked)
    if "sparse" in lists:
        text = text.replace("torch.as_tensor(", "(").replace("[each if", "[each.to_dense() if")
    after, left = made(tmp_path, text)
    assert left == ""
    same_results(text, after, "found")


def test_items_and_lists_of_the_user_s_classes_are_read_as_they_were(tmp_path):
    own = "import torch\nclass Own(dict):\n    def __getitem__(self, key):\n        return draw(key)\nown = Own()\n"
    assert "may be something else" in made(tmp_path, own + "for p in ps:\n    p.mul_(own['lr'])  # <<\n")[1]
    assert "own may see" in made(tmp_path, own + "for p in own:\n    p.mul_(2)  # <<\n")[1]


def test_what_is_set_again_is_set_on_its_own_owner(tmp_path):
    text = """\
import torch
class Box:
    grad = 1.0
boxes = [Box(), Box()]
for box in boxes:
    box.grad *= 3  # <<
found = [torch.tensor(box.grad) for box in boxes]
"""
    same_results(text, made(tmp_path, text)[0], "found")
