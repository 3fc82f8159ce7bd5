"""A backward pass that is told what is trained: where it is written, and where gradients may be missed.

Module: flatout.edits.reading.graphs.discarded_gradients.
"""

import pytest
from tests.unit.edits.scripts import edited, same_results

PAIR = """\
import torch
opt_d = torch.optim.Adam(d.parameters())
opt_g = torch.optim.Adam(g.parameters())
for x in data:
    fake = g(x)
    loss_d = d(x).mean() - d(fake).mean()
    opt_d.zero_grad()
    loss_d.backward(retain_graph=True)  # <<
    opt_d.step()
    opt_g.zero_grad()
    d(fake).mean().backward()
    opt_g.step()
"""
INPUTS = 'inputs=[p for g in opt_d.param_groups for p in g["params"] if p.requires_grad] or None'


def made(folder, text, **measured):
    return edited(folder, "needed-inputs", text, **measured)


def line(after, start):
    return next(each.strip() for each in after.split("\n") if each.strip().startswith(start))


def test_the_optimizer_that_steps_next_names_what_is_trained(tmp_path):
    after, left = made(tmp_path, PAIR)
    assert (line(after, "loss_d.b"), left) == (f"loss_d.backward(retain_graph=True, {INPUTS})", "")


@pytest.mark.parametrize("step", ["scaler.step(opt_d)", "sched.step()\n    opt_d.step()", "if x: opt_d.step()"])
def test_scalers_schedulers_and_conditions_are_understood(tmp_path, step):
    text = PAIR.replace("opt_d.step()", step).replace("(retain_graph=True)", "()")
    after, _ = made(tmp_path, text)
    assert line(after, "loss_d.b") == f"loss_d.backward({INPUTS})"


def test_all_optimizers_that_step_before_the_next_pass_count(tmp_path):
    text = PAIR.replace("    opt_d.step()", "    opt_d.step()\n    self.opt_h.step()")
    after, _ = made(tmp_path, text)
    assert "inputs=[p for o in (opt_d, self.opt_h) for g in o.param_groups" in after


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("opt_d.step()", "clip_grad_norm_(p, 1)\n    opt_d.step()", "clip_grad_norm_ may see"),
        ("opt_d.step()", "print(w.grad)\n    opt_d.step()", "grad may see"),
        ("opt_d.step()", "pass", "which optimizers step"),
        ("opt_d.step()", "opt_d.step(closure)", "which optimizers step"),
        ("opt_d.step()", "finish()\n    opt_d.step()", "which optimizers step"),
        ("opt_d.step()", "world.step()", "which optimizers step"),
        ("for x in data:", "go = opt_g.step\nfor x in data:", "opt_g.step may be called by another name"),
        ("opt_g.zero_grad()", "pass", "opt_g.step() may use the gradients"),
        ("opt_g.zero_grad()", "if x: opt_g.zero_grad()", "opt_g.step() may use the gradients"),
        ("opt_g.zero_grad()", "opt_g.zero_grad(set_to_none=False)", "opt_g.step() may use the gradients"),
        ("for x in data:", "norms = [getattr(p, 'grad') for p in g.parameters()]\nfor x in data:", "grad may see"),
        (
            "import torch\n",
            "import torch\nfrom torch.nn.utils import clip_grad_value_ as cut\ncut(q)\n",
            "value_ may see",
        ),
        ("opt_d.step()", "if x:\n        opt_e.step()\n    opt_d.step()", "opt_e may not be there yet"),
        (
            "import torch\n",
            "import torch\nclass Loss:\n    def backward(self):\n        pass\n",
            "backward() of the user's",
        ),
        ("retain_graph=True", "create_graph=True", "more than retain_graph"),
        ("loss_d.backward(retain_graph=True)", "engine.backward(loss_d)", "more than retain_graph"),
        ("fake = g(x)", "fake = g(x)\n    w.register_hook(f)", "register_hook"),
        ("fake = g(x)", "fake = torch.utils.checkpoint.checkpoint(g, x)", "checkpoint may see"),
    ],
)
def test_gradients_that_somebody_may_read_are_computed(tmp_path, old, new, reason):
    text = "def finish():\n    other.zero_grad()\n    other.step()\n" + PAIR
    after, left = made(tmp_path, text.replace(old, new, 1))
    assert after == ""
    assert reason in left


@pytest.mark.parametrize(
    ("holds", "zeroes", "sure"),
    [
        ("g.parameters()", "g.zero_grad()", True),
        ("g.parameters()", "d.zero_grad()", False),
        ("[*g.parameters(), *e.parameters()]", "g.zero_grad()", False),
    ],
)
def test_a_network_may_zero_what_its_optimizer_holds(tmp_path, holds, zeroes, sure):
    text = PAIR.replace("opt_g.zero_grad()", zeroes).replace("Adam(g.parameters())", f"Adam({holds})")
    assert bool(made(tmp_path, text)[0]) is sure


def test_a_pass_inside_of_a_function_that_runs_behind_the_zeroing_is_left(tmp_path):
    inside = PAIR.split("for x in data:\n")[1].split("    opt_g.zero_grad")[0]
    text = f"""\
import torch
opt_d = torch.optim.Adam(d.parameters())
opt_g = torch.optim.Adam(g.parameters())
def again(x):
{inside}
for x in data:
    opt_g.zero_grad()
    again(x)
    d(g(x)).mean().backward()
    opt_g.step()
"""
    assert "opt_g.step() may use the gradients" in made(tmp_path, text)[1]


def test_an_input_that_asks_for_gradients_is_another_matter(tmp_path):
    assert "requires_grad" in made(tmp_path, PAIR, parameters=0)[1]


TRAINED = """\
import torch
d, g = torch.nn.Linear(4, 1), torch.nn.Linear(4, 4)
for one in d.parameters():
    one.requires_grad_(FROZEN)
opt_d = torch.optim.SGD(d.parameters(), lr=0.1)
for step in range(3):
    loss = d(g(torch.randn(8, 4))).square().mean()
    opt_d.zero_grad()
    loss.backward()  # <<
    opt_d.step()
"""


@pytest.mark.parametrize("frozen", ["True", "False"])
def test_the_weights_are_the_same_to_the_bit_and_nothing_that_is_trained_is_no_error(tmp_path, frozen):
    text = TRAINED.replace("FROZEN", frozen)
    after, _ = made(tmp_path, text)
    assert "inputs=" in after
    same_results(text, after, "d")
