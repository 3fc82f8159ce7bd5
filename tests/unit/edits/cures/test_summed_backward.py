"""Several backward passes over one graph as one: where it is written, and where the passes are left apart.

Module: flatout.edits.reading.writes.writes_between.
"""

import pytest
from tests.unit.edits.scripts import edited, same_results

HEAD = """\
import torch
first = second = crit = net = torch.nn.Linear(4, 1)
total = 0.0
def skip(out):
    return bool(out.sum() > 0)
"""


def made(folder, text):
    return edited(folder, "one-backward", HEAD + text)


def test_passes_of_one_block_are_one_in_the_place_of_the_last(tmp_path):
    after, left = made(
        tmp_path,
        "for x in batches:\n    a = first(x)\n    a.backward(retain_graph=True)\n    b = second(x)  # why\n"
        "    b.backward()  # <<\n    optimizer.step()\n",
    )
    assert left == ""
    assert after == HEAD + (
        "for x in batches:\n    a = first(x)\n    b = second(x)  # why\n    torch.autograd.backward([a, b])\n"
        "    optimizer.step()\n"
    )


def test_the_line_of_the_finding_may_be_any_of_them_and_a_graph_that_is_retained_to_the_end_stays(tmp_path):
    after, _ = made(
        tmp_path,
        "def train(self):\n    self.a.backward(None, True)  # <<\n    print(self.a.item())\n"
        "    (2 * self.b).backward(retain_graph=True)\n    self.scaler.scale(c).mean().backward(retain_graph=True)\n",
    )
    assert after == HEAD + (
        "def train(self):\n    loss_1 = self.a\n    print(self.a.item())\n    loss_2 = 2 * self.b\n"
        "    torch.autograd.backward([loss_1, loss_2, self.scaler.scale(c).mean()], retain_graph=True)\n"
    )


def test_a_name_that_is_bound_anew_between_the_passes_is_kept_under_another_one(tmp_path):
    after, _ = made(
        tmp_path,
        "loss = first(x)\nloss.backward(retain_graph=True)\nloss_1 = 3\nloss = second(x)\nloss.backward()  # <<\n",
    )
    assert after == HEAD + (
        "loss = first(x)\nloss_1_2 = loss\nloss_1 = 3\nloss = second(x)\ntorch.autograd.backward([loss_1_2, loss])\n"
    )


def test_a_loop_over_losses_is_one_call(tmp_path):
    after, _ = made(
        tmp_path, "for loss in losses.values():\n    loss.backward(retain_graph=True)  # <<\noptimizer.step()\n"
    )
    assert after == HEAD + "torch.autograd.backward(list(losses.values()), retain_graph=True)\noptimizer.step()\n"


@pytest.mark.parametrize("head", ["for t in range(5):", "while t < 5:"])
def test_a_loop_that_makes_its_losses_collects_them(tmp_path, head):
    after, _ = made(
        tmp_path,
        f"def train(x, losses):\n    total = 0\n    {head}\n        out, h = net(x[:, t], h)\n"
        "        if skip(out):\n            continue\n        loss = crit(out)\n"
        "        loss.backward(retain_graph=t < 4)  # <<\n        total += loss.item()\n    optimizer.step()\n",
    )
    assert after == HEAD + (
        f"def train(x, losses):\n    total = 0\n    losses_2 = []\n    {head}\n        out, h = net(x[:, t], h)\n"
        "        if skip(out):\n            continue\n        loss = crit(out)\n"
        "        losses_2.append(loss)\n        total += loss.item()\n    torch.autograd.backward(losses_2)\n"
        "    optimizer.step()\n"
    )


def test_a_file_without_torch_gets_its_import(tmp_path):
    after, _ = edited(tmp_path, "one-backward", "import os\na.backward(retain_graph=True)\nb.backward()  # <<\n")
    assert "import torch\n" in after
    assert "torch.autograd.backward([a, b])\n" in after


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a.backward(retain_graph=True)\nclip_grad_norm_(p, 1)\nb.backward()  # <<\n", "no other backward pass"),
        ("a.backward(retain_graph=True)\noptimizer.step()\nb.backward()  # <<\n", "no other backward pass"),
        ("a.backward(retain_graph=True)\nlog(w.grad)\nb.backward()  # <<\n", "no other backward pass"),
        ("a.backward(retain_graph=True)\nw.mul_(2)\nb.backward()  # <<\n", "no other backward pass"),
        (
            "def norm():\n    return w.grad.norm()\na.backward(retain_graph=True)\nnorm()\nb.backward()  # <<\n",
            "no other backward pass",
        ),
        (
            "class Net(torch.nn.Module):\n    def forward(self, x):\n        self.code.data = x\n"
            "a.backward(retain_graph=True)\nb = net(x)\nb.backward()  # <<\n",
            "no other backward pass",
        ),
        (
            "for x in data:\n    a.backward(retain_graph=True)\n    if bad(a):\n        continue\n"
            "    b.backward()  # <<\n    print(w.grad)\n",
            "a.backward() may read or change",
        ),
        ("a.backward(retain_graph=True)\na += 1\nb = a\nb.backward()  # <<\n", "no other backward pass"),
        (
            "class Head(torch.nn.Module):\n    def forward(self, x):\n        x += 1\n        return x.sum()\n"
            "head = Head()\na.backward(retain_graph=True)\nb = head(h)\nb.backward()  # <<\n",
            "no other backward pass",
        ),
        ("for x in data:\n    loss += f(x)\n    loss.backward(retain_graph=True)  # <<\n", "loss += f(x) may change"),
        ("for x in data:\n    f(x).backward()  # <<\n    optimizer.step()\n", "this line is not loss.backward() alone"),
        ("for x in data:\n    loss = f(x)\n    loss.backward()  # <<\n    optimizer.step()\n", "optimizer.step() may"),
        (
            "def f():\n    for x in data:\n        loss = net(x)\n        loss.backward()  # <<\n        return x\n",
            "may be left between",
        ),
        ("a.backward(retain_graph=True)\nx += 1\nb.backward()  # <<\n", "no other backward pass"),
        ("a.backward(retain_graph=True)\nh[0] = 1\nb.backward()  # <<\n", "no other backward pass"),
        ("a.backward(retain_graph=True)\nfrom m import f\nf(h)\nb.backward()  # <<\n", "no other backward pass"),
        ("up = opt.step\na.backward(retain_graph=True)\nup()\nb.backward()  # <<\n", "no other backward pass"),
        ("see = lambda: w.norm()\na.backward(retain_graph=True)\nsee()\nb.backward()  # <<\n", "no other backward"),
        ("a.backward(retain_graph=True)\nn = getattr(w, 'grad')\nb.backward()  # <<\n", "no other backward pass"),
        (
            "r = torch.nn.ReLU(inplace=True)\na.backward(retain_graph=True)\nb = r(h)\nb.backward()  # <<\n",
            "inplace=True",
        ),
        (
            "def walk():\n    for x in data:\n        yield net(x)\n        opt.step()\n"
            "for loss in walk():\n    loss.backward()  # <<\n",
            "opt.step() may run between",
        ),
        (
            "try:\n    for x in q:\n        loss = net(x)\n        loss.backward()  # <<\nexcept OSError:\n    n = 0\n",
            "might be caught",
        ),
        (
            "class F(torch.autograd.Function):\n    @staticmethod\n    def backward(ctx, g):\n        return g.sign()\n"
            "a.backward(retain_graph=True)\nb.backward()  # <<\n",
            "backward() of the user's",
        ),
        (
            "h = torch.utils.checkpoint.checkpoint(net, x)\na.backward(retain_graph=True)\nb.backward()  # <<\n",
            "checkpoint may tell",
        ),
        (
            "losses = (learn(x) for x in data)\nfor loss in losses:\n    loss.backward()  # <<\n",
            "losses may run code between",
        ),
        ("for loss in map(learn, data):\n    loss.backward()  # <<\n", "may run code between"),
        ("a.backward(torch.ones(2))\nb.backward(torch.ones(2))  # <<\n", "without gradients of its own"),
        ("a.backward(create_graph=True)\nb.backward(create_graph=True)  # <<\n", "without gradients of its own"),
        ("loss = f(x)\nloss.backward()  # <<\n", "no other backward pass stands beside it"),
        (
            "w.register_hook(print)\na.backward(retain_graph=True)\nb.backward()  # <<\n",
            "register_hook may look at the gradients",
        ),
        (
            "from torch.nn.parallel import DistributedDataParallel\nnet = DistributedDataParallel(net)\n"
            "a.backward(retain_graph=True)\nb.backward()  # <<\n",
            "DistributedDataParallel may look",
        ),
    ],
)
def test_passes_that_may_mean_something_each_are_left(tmp_path, text, reason):
    after, left = made(tmp_path, text)
    assert after == ""
    assert reason in left


def test_losses_are_those_of_the_time_of_their_pass(tmp_path):
    text = """\
h = first(torch.ones(3, 4))
kept = [h.mean()]
kept[-1].backward(retain_graph=True)
kept.append(h.square().mean())
kept[-1].backward()  # <<
found = [first.weight.grad]
"""
    after, left = made(tmp_path, text)
    assert left == ""
    same_results(HEAD + text, after, "found", exact=False)


def test_the_variable_of_a_loop_is_there_behind_it(tmp_path):
    text = "losses = [first(torch.ones(3, 4)).mean()]\nfor each in losses:\n    each.backward()  # <<\nfound = [each]\n"
    after, _ = made(tmp_path, text)
    assert "losses_2.append(each)" in after
    same_results(HEAD + text, after, "found")


SHARED = """\
import torch
net, heads = torch.nn.Linear(4, 4), [torch.nn.Linear(4, 1) for _ in range(3)]
hidden = net(torch.randn(8, 4)).tanh()
losses = [head(hidden).square().mean() for head in heads]
for loss in losses:
    loss.backward(retain_graph=True)  # <<
found = [net.weight.grad, *(head.weight.grad for head in heads)]
"""


def test_gradients_are_those_of_the_passes_one_by_one(tmp_path):
    after, _ = edited(tmp_path, "one-backward", SHARED)
    assert "torch.autograd.backward(list(losses), retain_graph=True)" in after
    same_results(SHARED, after, "found", exact=False)


def test_no_losses_are_no_pass(tmp_path):
    text = SHARED.replace("in heads]\nfor", "in heads[:0]]\nfor").replace("head.weight.grad for head in heads", "")
    text = text.replace("found = [net.weight.grad, *()]", "found = [net.weight]")
    after, _ = edited(tmp_path, "one-backward", text)
    same_results(text, after, "found")
