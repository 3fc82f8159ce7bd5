"""The other network's output, detached where the trained one is called."""

import pytest
from tests.unit.edits.scripts import edited, same_results

PAIR = """\
import torch
d, g = torch.nn.Linear(4, 1), torch.nn.Linear(4, 4)
opt_d = torch.optim.SGD(d.parameters(), lr=0.1)
opt_g = torch.optim.SGD(g.parameters(), lr=0.1)
for step in range(3):
    fake = g(torch.randn(8, 4))
    loss_d = d(torch.randn(8, 4)).mean() - d(fake).square().mean()
    opt_d.zero_grad()
    loss_d.backward(retain_graph=True)  # <<
    opt_d.step()
    loss_g = d(fake).mean()
    opt_g.zero_grad()
    loss_g.backward()
    opt_g.step()
"""
DETACHED = "fake.detach() if isinstance(fake, torch.Tensor) else fake"


def made(folder, text):
    return edited(folder, "detach-argument", text)


def test_what_another_network_made_is_detached_for_this_loss_alone(tmp_path):
    after, left = made(tmp_path, PAIR)
    assert left == ""
    assert after.replace(f"d({DETACHED})", "d(fake)") == PAIR.replace("  # <<", "")
    assert f"- d({DETACHED}).square()" in after
    same_results(PAIR, after, "d", "g")


def test_a_call_inside_the_call_is_detached_too(tmp_path):
    text = PAIR.replace("d(fake).square()", "d(g(torch.ones(8, 4))).square()")
    after, _ = made(tmp_path, text)
    detached = "made.detach() if isinstance(made := g(torch.ones(8, 4)), torch.Tensor) else made"
    assert f"d({detached}).square()" in after
    same_results(text, after, "d", "g")


def test_one_name_for_the_results_of_both_passes_is_told_apart(tmp_path):
    text = PAIR.replace("- d(fake).square().mean()", "- out.mean()").replace("= d(fake).mean()", "= out.mean()")
    for loss in ("loss_d", "loss_g"):
        text = text.replace(f"    {loss} =", f"    out = d(fake)\n    {loss} =")
    after, _ = made(tmp_path, text)
    assert after.count("detach") == 1
    assert after.index(f"d({DETACHED})") < after.index("loss_d.backward")
    same_results(text, after, "d", "g")


def test_methods_are_understood(tmp_path):
    text = """\
import torch
class Task:
    def __init__(self):
        self.actor, self.critic = torch.nn.Linear(3, 1), torch.nn.Bilinear(3, 1, 1)
        self.opt = torch.optim.Adam(self.critic.parameters())
        self.other = torch.optim.Adam(list(self.actor.parameters()))
    def step(self, x):
        action = self.actor(x)
        loss = self.critic(x, action).mean()
        loss.backward()  # <<
        self.opt.step()
"""
    detached = "action.detach() if isinstance(action, torch.Tensor) else action"
    assert f"self.critic(x, ({detached}))" in made(tmp_path, text)[0]


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("loss_g = d(fake).mean()", "loss_g = loss_d + 1", "part of another backward pass"),
        ("d(fake).square()", "c(fake).square()", "no call of d is given"),
        ("d(fake).square()", "d(torch.ones(8, 4)).square()", "no call of d is given"),
        ("    opt_d.step()", "    print(1)", "cannot be told"),
        ("loss_d.backward(retain_graph=True)", "loss_d.sum()", "not loss.backward() alone"),
        ("SGD(d.parameters()", "SGD(parameters", "cannot be told"),
        ("    opt_g.zero_grad()\n", "", "opt_g.step() may use the gradients"),
        ("    opt_d.step()", "    print(g.weight.grad)\n    opt_d.step()", "grad may see"),
        ("    opt_d.step()", "    fake.register_hook(print)\n    opt_d.step()", "register_hook may see"),
        ("torch.nn.Linear(4, 4)", "torch.nn.Sequential(d)", "or parts of each other"),
        ("for step", "opt_d.add_param_group(more)\nfor step", "may be given more"),
    ],
)
def test_where_it_is_not_sure_nothing_is_detached(tmp_path, old, new, reason):
    after, left = made(tmp_path, PAIR.replace(old, new))
    assert after == ""
    assert reason in left


def test_a_network_that_keeps_something_of_its_input_is_left(tmp_path):
    own = (
        "class D(torch.nn.Module):\n    def forward(self, x):\n        self.norm = x.norm()\n        return self.a(x)\n"
    )
    text = PAIR.replace("import torch\n", f"import torch\n{own}").replace("torch.nn.Linear(4, 1)", "D()")
    assert "forward() keeps self.norm" in made(tmp_path, text)[1]


def test_a_network_that_is_a_part_of_the_other_one_is_left(tmp_path):
    own = """\
class Pair(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.front, self.back = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
    def forward(self, x):
        return self.back(x)
"""
    text = PAIR.replace("import torch\n", f"import torch\n{own}")
    text = text.replace("d, g = torch.nn.Linear(4, 1), torch.nn.Linear(4, 4)", "d = Pair()\ng = d.front")
    assert "or parts of each other" in made(tmp_path, text)[1]


def test_more_than_one_tensor_is_handed_on_as_it_is(tmp_path):
    own = """\
class Two(torch.nn.Linear):
    def forward(self, x):
        x = x[1] if isinstance(x, tuple) else x
        return x, super().forward(x)
"""
    text = PAIR.replace("import torch\n", f"import torch\n{own}").replace("torch.nn.Linear(4", "Two(4")
    text = text.replace(".mean()", "[1].mean()").replace(".square()[1]", "[1].square()")
    after, left = made(tmp_path, text)
    assert left == ""
    same_results(text, after, "d", "g")


def test_the_loss_of_an_actor_needs_the_way_through_its_critic(tmp_path):
    text = PAIR.replace("loss_d.backward(retain_graph=True)  # <<", "loss_d.backward(retain_graph=True)")
    after, left = made(tmp_path, text.replace("loss_g.backward()", "loss_g.backward()  # <<"))
    assert after == ""
    assert "no call of g is given what another network made" in left
