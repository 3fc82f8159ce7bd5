"""The model behind an optimizer that is given groups of parameters, in a method or a function."""

import pytest
from tests.unit.edits.scripts import SCRIPT, one

METHOD = """\
import torch
from torch import nn
from torch.nn import functional as F


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 2)

    def forward(self, x):
        return self.inner(x)

    def configure_optimizers(self, decay, rate):
        named = {pn: p for pn, p in self.named_parameters()}
        named = {pn: p for pn, p in named.items() if p.requires_grad}
        heavy = [p for n, p in named.items() if p.dim() >= 2]
        light = [p for n, p in named.items() if p.dim() < 2]
        groups = [{"params": heavy, "weight_decay": decay}, {"params": light, "weight_decay": 0.0}]
        print(f"{len(heavy)} tensors, {sum(p.numel() for p in heavy)} weights")
        return torch.optim.AdamW(groups, lr=rate)


model = Net()
optimizer = model.configure_optimizers(0.1, 1e-3)
for x, y in loader:
    loss = F.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
"""
LINE = "model.to(memory_format=torch.channels_last)\n"


def test_the_model_whose_method_makes_the_optimizer_is_found(tmp_path):
    after, outcome = one(tmp_path, "channels-last", METHOD)
    assert after == METHOD.replace("model = Net()\n", f"model = Net()\n{LINE}")
    assert (outcome.changed, outcome.left) == (1, ())


def test_a_method_of_the_class_above_makes_it_too(tmp_path):
    text = METHOD.replace("class Net(", "class Above(").replace(
        "\nmodel =", "\nclass Net(Above):\n    pass\n\n\nmodel ="
    )
    after, outcome = one(tmp_path, "channels-last", text)
    assert after == text.replace("model = Net()\n", f"model = Net()\n{LINE}")
    assert outcome.left == ()


METHODS_LEFT = [
    ("optimizer = model.c", "other = Net()\nother.configure_optimizers(0, 0)\noptimizer = model.c", "2 models are"),
    ("optimizer = model.configure_optimizers(0.1, 1e-3)", "optimizer = fit(model)", "no model is"),
    ("(self, decay, rate)", "(self, decay, rate, more=())", None),
    ("return torch.optim.AdamW(groups", "groups += more\n        return torch.optim.AdamW(groups", "not given"),
    ("return torch.optim.AdamW(groups", "fill(groups)\n        return torch.optim.AdamW(groups", "not given"),
    ("return torch.optim.AdamW(groups", "groups = self.groups\n        return torch.optim.AdamW(groups", "not given"),
    ("named.items() if p.dim() < 2", "head.named_parameters()", "not given"),
    ('"params": light', '"params": split(light)', "not given"),
    ("class Net(nn.Module):", "class Mine(nn.Module):", "does not show"),
]


@pytest.mark.parametrize(("before", "after", "reason"), METHODS_LEFT)
def test_what_may_come_from_elsewhere_is_left_out(tmp_path, before, after, reason):
    text = METHOD.replace(before, after)
    assert text != METHOD
    got, outcome = one(tmp_path, "channels-last", text)
    if reason is None:  # an argument that is not among the groups
        assert outcome.changed == 1
        return
    assert got == text
    assert reason in outcome.left[0]


GROUPS = [
    "params = list(model.parameters())",
    "params = filter(lambda p: p.requires_grad, model.parameters())",
    'params = [{"params": model.parameters(), "lr": rate}]',
    "params = []\nfor name, p in model.named_parameters():\n    params.append(p)",
    "heavy, light = [], []\nfor name, p in model.named_parameters():\n    (heavy if p.dim() else light).append(p)\n"
    "params = [*model.parameters()]",
    "heavy, light = [], []\nfor name, p in model.named_parameters():\n    if p.dim() > 1:\n        heavy.append(p)\n"
    '    else:\n        light.append(p)\nparams = [{"params": heavy, "weight_decay": decay}, {"params": light}]',
    "first = [p for p in model.parameters() if p.dim()]\nparams = first + list(model.parameters())[1:]",
]


@pytest.mark.parametrize("made", GROUPS)
def test_groups_that_are_made_before_name_the_model(tmp_path, made):
    text = SCRIPT.replace(
        "optimizer = torch.optim.SGD(model.parameters()", f"{made}\noptimizer = torch.optim.SGD(params"
    )
    after, outcome = one(tmp_path, "channels-last", text)
    assert after == text.replace("model = nn.Linear(4, 2)\n", f"model = nn.Linear(4, 2)\n{LINE}")
    assert outcome.left == ()


GROUPS_LEFT = [
    "params = make(model)",
    "params = list(model.parameters()) + list(head.parameters())",
    "params = [p for module in (model, head) for p in module.parameters()]",
    "params = list(model.parameters())\nparams.extend(head.parameters())",
    "params = list(model.parameters())\nfor p in head.parameters():\n    params.append(p)",
    "params = list(model.parameters())\nparams[0] = weight",
    "params = list(model.parameters())\nwith opened() as params:\n    pass",
    "params = [weight for p in model.parameters()]",
    "def more():\n    global params\n    params = [weight]\nparams = list(model.parameters())",
]


@pytest.mark.parametrize("made", GROUPS_LEFT)
def test_groups_with_parameters_of_others_are_left_out(tmp_path, made):
    text = SCRIPT.replace(
        "optimizer = torch.optim.SGD(model.parameters()", f"{made}\noptimizer = torch.optim.SGD(params"
    )
    after, outcome = one(tmp_path, "channels-last", text)
    assert after == text
    assert outcome.left


def test_a_script_that_compiles_by_itself_is_said_to_where_its_model_cannot_be_told(tmp_path):
    text = METHOD.replace("model = Net()", "model = Net() if fresh else Net.load()\nmodel = torch.compile(model)")
    after, outcome = one(tmp_path, "compiled-module", text, mode="default")
    assert after == text
    assert "mentions torch.compile" in outcome.left[0]
