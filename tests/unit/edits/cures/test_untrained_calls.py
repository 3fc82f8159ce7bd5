"""What is not trained, called under `torch.no_grad()`: by the line of the finding, or inside of a model's forward.

Modules: flatout.edits.reading.graphs.apart_networks, flatout.edits.reading.graphs.joined_uses,
flatout.edits.reading.graphs.steady_graphs, flatout.edits.reading.graphs.untrained_models.
"""

import pytest
from tests.unit.edits.scripts import edited, same_results

TEACHER = """\
import torch
teacher, student, distance = torch.nn.Linear(4, 3), torch.nn.Linear(4, 3), torch.nn.MSELoss()
optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
data, device = torch.utils.data.DataLoader(rows), "cpu"
for x in data:
    soft = teacher(x.to(device))[0]  # <<
    loss = distance(student(x), soft)
    loss.backward()
"""
MODEL = """\
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.head = torch.nn.Linear(4, 4), torch.nn.Linear(4, 2)
    def forward(self, x, mask=None):
        h = self.encoder(
            x,
            mask=mask,
        )  # features
        return self.head(h)
net = Net()
optimizer = torch.optim.SGD(net.head.parameters(), lr=0.1)
data = torch.utils.data.DataLoader(rows)
for x in data:
    out = net(x)  # <<
"""


def made(folder, text, untrained="", given=0):
    return edited(folder, "no-graph", text, untrained=untrained, given_gradients=given)


def test_the_call_of_a_teacher_stands_under_a_block(tmp_path):
    after, left = made(tmp_path, TEACHER)
    assert left == ""
    assert "for x in data:\n    with torch.no_grad():\n        soft = teacher(x.to(device))[0]\n    loss" in after


def test_a_part_that_is_not_trained_is_found_in_forward(tmp_path):
    after, _ = made(tmp_path, MODEL, untrained="encoder")
    assert after == MODEL.replace("  # <<", "").replace(
        "        h = self.encoder(\n            x,\n            mask=mask,\n        )  # features\n",
        "        with torch.no_grad():\n            h = self.encoder(\n                x,\n                mask=mask,\n"
        "            )  # features\n",
    )


def test_what_stands_there_already_is_left(tmp_path):
    text = TEACHER.replace("    soft", "    with torch.no_grad():\n        soft")
    assert made(tmp_path, text) == ("", "there")


@pytest.mark.parametrize(
    ("text", "untrained", "given", "reason"),
    [
        (TEACHER, "", 1, "gradients go through what is not trained"),
        (TEACHER.replace("teacher(x.to(device))", "teacher(student(x))"), "", 0, "the line does more"),
        (TEACHER.replace("soft = teacher(x.to(device))[0]", "soft = f(teacher(x))"), "", 0, "the line does more"),
        (TEACHER.replace("soft =", "soft +="), "", 0, "the line does more"),
        (TEACHER + "student = DistributedDataParallel(student)\n", "", 0, "DistributedDataParallel may wait"),
        (TEACHER + "optimizer.add_param_group(more)\n", "", 0, "add_param_group() may train it later"),
        (TEACHER + "teacher.requires_grad_(True)\n", "", 0, "requires_grad_() may train it later"),
        (TEACHER + "for p in q:\n    p.requires_grad = epoch > 3\n", "", 0, "requires_grad may train it later"),
        (
            TEACHER + "if epoch > 3:\n    optimizer = torch.optim.Adam(teacher.parameters())\n",
            "",
            0,
            "an optimizer made under a condition may train it later",
        ),
        (TEACHER + "g = torch.autograd.grad(loss, x)\n", "", 0, "grad() may train it later"),
        (TEACHER + "torch.nn.utils.clip_grad_norm_(everything, 1)\n", "", 0, "clip_grad_norm_ may see"),
        (TEACHER + "log(teacher.weight.grad)\n", "", 0, "grad may see its gradients"),
        (TEACHER + "both = torch.nn.ModuleList([teacher, student])\n", "", 0, "teacher may be trained"),
        (TEACHER + "teacher.weight = student.weight\n", "", 0, "teacher may be trained"),
        (TEACHER + "for p in teacher.parameters():\n    mine.append(p)\n", "", 0, "teacher may be trained"),
        (TEACHER + "group = optimizer.param_groups[0]['params']\n", "", 0, "may be given more"),
        (TEACHER + "x = torch.zeros(3, requires_grad=True)\n", "", 0, "requires_grad of something else"),
        (TEACHER.replace("for x in data:", "for x in data:\n    x = blend(x, student)"), "", 0, "may have a graph"),
        (TEACHER.replace("for x", "if swap:\n    teacher = student\nfor x"), "", 0, "may be one network"),
        (TEACHER.replace("student.parameters()", "weights"), "", 0, "what the optimizers hold"),
        (TEACHER + "print(soft)\n", "", 0, "print() may see"),
        (TEACHER + "print(soft.requires_grad)\n", "", 0, "soft.requires_grad` may see"),
        (TEACHER + "keep = [soft]\n", "", 0, "may see that it has no graph"),
        (TEACHER.replace("student(x), soft", "soft, x"), "", 0, "may see that it has no graph"),
        (TEACHER.replace("student(x), soft", "student(x).detach(), soft"), "", 0, "may see that it has no graph"),
        (TEACHER.replace("student(x), soft", "student(x).argmax(1), soft"), "", 0, "may see that it has no graph"),
        (
            TEACHER.replace("    loss", "    with torch.no_grad():\n        mine = student(x)\n    loss", 1).replace(
                "distance(student(x)", "distance(mine"
            ),
            "",
            0,
            "may see that it has no graph",
        ),
        (MODEL.replace("net.head.p", "net.p"), "encoder", 0, "may be one network"),
        (MODEL.replace("self.head(h)", "h"), "encoder", 0, "may see that it has no graph"),
        (MODEL.replace("net(x)", "net(blend(x))"), "encoder", 0, "may have a graph"),
        (MODEL, "body.encoder", 0, "no single line"),
        (MODEL.replace("        h =", "        x = self.stem(x)\n        h ="), "encoder", 0, "no single line"),
        (MODEL.replace("forward(", "features("), "encoder", 0, "no single line"),
        (MODEL + "    net.encoder(x)\n".replace("net", "self"), "encoder", 0, "no single line"),
    ],
)
def test_what_gradients_may_go_through_is_left(tmp_path, text, untrained, given, reason):
    after, left = made(tmp_path, text, untrained, given)
    assert after == ""
    assert reason in left


def test_a_finding_that_does_not_know_what_is_untrained_changes_nothing(tmp_path):
    assert "has trained parameters, too" in edited(tmp_path, "no-graph", TEACHER)[1]


def test_freezing_alone_trains_nothing_later(tmp_path):
    text = TEACHER.replace("optimizer =", "teacher.eval().requires_grad_(False)\noptimizer =")
    loop = "for p in teacher.parameters():\n    p.requires_grad = False\n"
    assert made(tmp_path, text + loop)[1] == ""
    assert "requires_grad of something else" in made(tmp_path, text + loop.replace("teacher", "student"))[1]


def test_gradients_of_what_is_trained_alone_may_be_clipped(tmp_path):
    clip = "    torch.nn.utils.clip_grad_norm_({}.parameters(), 1)\n"
    assert made(tmp_path, TEACHER + clip.format("student"))[1] == ""
    assert "clip_grad_norm_ may see" in made(tmp_path, TEACHER + clip.format("teacher"))[1]


def test_a_teacher_that_a_function_is_given_is_understood(tmp_path):
    text = """\
import torch
from torch.nn import functional as F
def distill(teacher, student, data, optimizer):
    for x in data:
        wanted = teacher(x)  # <<
        loss = F.mse_loss(student(x), wanted / 2)
        loss.backward()
        optimizer.step()
def main():
    big, small = torch.nn.Linear(4, 3), torch.nn.Linear(4, 3)
    big.eval()
    distill(big, small, torch.utils.data.DataLoader(rows), torch.optim.SGD(small.parameters(), lr=0.1))
main()
"""
    assert made(tmp_path, text)[1] == ""
    assert "big may be trained" in made(tmp_path, text.replace("big.eval()", "small.add_module('b', big)"))[1]


STUDENT = """\
class Student(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head, self.act = torch.nn.Linear(4, 4), torch.nn.Linear(4, 3), torch.nn.ReLU()
        self.late = True
    def forward(self, x):
        BODY
"""


@pytest.mark.parametrize(
    ("body", "sure"),
    [
        ("return self.head(self.act(self.body(x)))", True),
        ("h = torch.relu(self.body(x))\n        return self.act(self.head(h)) * 2", True),
        ("x = self.body(x)\n        return x.view(-1, 4)", True),
        ("return self.body(x), self.head(x)", True),
        ("return self.head(x) if self.late else x", False),
        ("if self.late:\n            x = self.head(x)\n        return x", False),
        ("return self.act(x)", False),
        ("return self.head(x).detach()", False),
        ("with torch.no_grad():\n            h = self.head(x)\n        return h", False),
        ("return self.head(x).argmax(1)", False),
    ],
)
def test_a_student_has_a_graph_in_any_case(tmp_path, body, sure):
    text = TEACHER.replace("import torch\n", "import torch\n" + STUDENT.replace("BODY", body))
    text = text.replace(
        "student, distance = torch.nn.Linear(4, 3), torch.nn.Linear(4, 3)",
        "student, distance = torch.nn.Linear(4, 3), Student()",
    )
    left = made(tmp_path, text)[1]
    assert ("may have no graph at times" in left) is not sure


def test_a_student_that_may_be_another_network_is_left(tmp_path):
    text = TEACHER.replace("for x in", "if small:\n    student = torch.nn.Identity()\nfor x in")
    assert "student gives may have no graph" in made(tmp_path, text)[1]


def test_the_weights_are_the_same_to_the_bit(tmp_path):
    text = """\
import torch
teacher, student = torch.nn.Linear(4, 3), torch.nn.Linear(4, 3)
optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
for step in range(3):
    x = torch.randn(8, 4)
    soft = teacher(x)  # <<
    optimizer.zero_grad()
    (student(x) - soft).square().mean().backward()
    optimizer.step()
"""
    after, _ = made(tmp_path, text)
    same_results(text, after, "student")
