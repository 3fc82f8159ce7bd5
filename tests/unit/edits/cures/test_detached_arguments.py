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


def made(folder, text):
    return edited(folder, "detach-argument", text)


def test_what_another_network_made_is_detached_for_this_loss_alone(tmp_path):
    after, left = made(tmp_path, PAIR)
    assert left == ""
    assert after.replace("fake.detach()", "fake") == PAIR.replace("  # <<", "")
    assert "- d(fake.detach()).square()" in after
    same_results(PAIR, after, "d", "g")


def test_a_call_inside_the_call_is_detached_too(tmp_path):
    text = PAIR.replace("d(fake).square()", "d(g(torch.ones(8, 4))).square()")
    assert "d(g(torch.ones(8, 4)).detach()).square()" in made(tmp_path, text)[0]


def test_one_name_for_the_results_of_both_passes_is_told_apart(tmp_path):
    text = PAIR.replace("- d(fake).square().mean()", "- out.mean()").replace("= d(fake).mean()", "= out.mean()")
    for loss in ("loss_d", "loss_g"):
        text = text.replace(f"    {loss} =", f"    out = d(fake)\n    {loss} =")
    after, _ = made(tmp_path, text)
    assert after.count("detach") == 1
    assert after.index("d(fake.detach())") < after.index("loss_d.backward")
    same_results(text, after, "d", "g")


def test_methods_are_understood(tmp_path):
    text = """\
import torch
class Task:
    def __init__(self):
        self.opt = torch.optim.Adam(self.critic.parameters())
        self.other = torch.optim.Adam(list(self.actor.parameters()))
    def step(self, x):
        action = self.actor(x)
        loss = self.critic(x, action).mean()
        loss.backward()  # <<
        self.opt.step()
"""
    assert "self.critic(x, action.detach())" in made(tmp_path, text)[0]


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("loss_g = d(fake).mean()", "loss_g = loss_d + 1", "part of another backward pass"),
        ("d(fake).square()", "c(fake).square()", "no call of d is given"),
        ("d(fake).square()", "d(torch.ones(8, 4)).square()", "no call of d is given"),
        ("    opt_d.step()", "    print(1)", "cannot be told"),
        ("loss_d.backward(retain_graph=True)", "loss_d.sum()", "not loss.backward() alone"),
        ("SGD(d.parameters()", "SGD(parameters", "cannot be told"),
    ],
)
def test_where_it_is_not_sure_nothing_is_detached(tmp_path, old, new, reason):
    after, left = made(tmp_path, PAIR.replace(old, new))
    assert after == ""
    assert reason in left


def test_the_loss_of_an_actor_needs_the_way_through_its_critic(tmp_path):
    text = PAIR.replace("loss_d.backward(retain_graph=True)  # <<", "loss_d.backward(retain_graph=True)")
    after, left = made(tmp_path, text.replace("loss_g.backward()", "loss_g.backward()  # <<"))
    assert after == ""
    assert "no call of g is given what another network made" in left
