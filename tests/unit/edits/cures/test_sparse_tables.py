"""`sparse=True` for a table: which optimizers give the same results, and what does not take such gradients.

Module: flatout.edits.reading.graphs.shown_modules.
"""

import pytest
from tests.unit.edits.scripts import edited, same_results

TABLE = """\
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(50, 4, padding_idx=0)  # <<
    def forward(self, rows):
        return self.table(rows).sum(-1)
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(3):
    rows = torch.randint(0, 50, (6, 2))
    optimizer.zero_grad()
    net(rows).square().mean().backward()
    optimizer.step()
"""


def made(folder, text, optimizer="SGD"):
    return edited(folder, "sparse-gradients", text, optimizer=optimizer)


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")  # torch's own Adagrad makes such tensors
@pytest.mark.parametrize("name", ["SGD", "Adagrad"])
def test_the_call_gets_its_argument_and_the_training_nearly_the_same_weights(tmp_path, name):
    text = TABLE.replace("optim.SGD", f"optim.{name}")
    after, left = made(tmp_path, text, name)
    assert (after.count("padding_idx=0, sparse=True)"), left) == (1, "")
    same_results(text, after, "net", exact=False)


@pytest.mark.parametrize(
    "line",
    [
        "self.table = torch.nn.EmbeddingBag(50, 4, mode='mean')",
        "self.table = nn.Embedding.from_pretrained(weights, freeze=False)",
        "self.table = nn.ModuleList([nn.Embedding(n, 4) for n in sizes])",
        "h = nn.functional.embedding(rows, self.table)",
        "self.table = nn.Embedding(50, 4, sparse=False)",
    ],
)
def test_every_way_to_make_a_table_or_to_look_rows_up_is_known(tmp_path, line):
    after, _ = made(tmp_path, TABLE.replace("self.table = nn.Embedding(50, 4, padding_idx=0)", line))
    assert after.count("sparse=True)") == 1


TWO = TABLE.replace(
    "        self.table = ",
    "        self.words = nn.Embedding(50, 4, 0)\n        self.tied = nn.Embedding(9, 4, scale_grad_by_freq=True)\n"
    "        self.table = ",
).replace("self.table(rows)", "(self.table(rows) + self.words(rows))")


@pytest.mark.parametrize(("lines", "changed"), [((6, 7), 2), ((), 1), ((99,), 1)])
def test_tables_beside_it_that_the_finding_speaks_of_are_changed_with_it(tmp_path, lines, changed):
    after, left = edited(tmp_path, "sparse-gradients", TWO, optimizer="SGD", lines_of_other_tables=lines)
    assert left == ""
    assert after.count("sparse=True)") == changed
    assert "scale_grad_by_freq=True)" in after
    same_results(TWO, after, "net", exact=False)


def test_what_is_there_stays(tmp_path):
    assert made(tmp_path, TABLE.replace("padding_idx=0", "sparse=True")) == ("", "there")


@pytest.mark.parametrize(
    ("old", "new", "optimizer", "reason"),
    [
        ("optim.SGD", "optim.Adam", "Adam", "Adam with sparse gradients is another training (torch.optim.SparseAdam"),
        ("lr=0.1", "lr=0.1, momentum=0.9", "SGD", "momentum of SGD makes another training"),
        ("lr=0.1", "0.1, 0.9", "SGD", "momentum of SGD makes another training"),
        ("lr=0.1", "lr=0.1, weight_decay=decay", "SGD", "weight_decay of SGD makes another"),
        ("lr=0.1", "lr=0.1, fused=True", "SGD", "fused of SGD makes another"),
        ("lr=0.1", "**settings", "SGD", "momentum of SGD makes another"),
        ("net.parameters()", "[{'params': net.parameters(), 'momentum': 0.9}]", "SGD", "a parameter group may set"),
        ("net.parameters()", "[dict(params=net.parameters(), weight_decay=1)]", "SGD", "a parameter group may set"),
        ("torch.optim.SGD", "make", "SGD", "the line that makes the optimizer (SGD) is in no file"),
        ("optimizer.step()", "torch.nn.utils.clip_grad_norm_(p, 1)", "SGD", "clip_grad_norm_ may not take sparse"),
        ("optimizer.step()", "print(w.grad)", "SGD", "grad may not take sparse"),
        ("net = Net()", "net = nn.parallel.DistributedDataParallel(Net())", "SGD", "DistributedDataParallel may not"),
        ("padding_idx=0", "scale_grad_by_freq=True", "SGD", "scale_grad_by_freq takes no sparse"),
        ("nn.Embedding(50, 4, padding_idx=0)", "nn.EmbeddingBag(50, 4, mode='max')", "SGD", "mode='max' takes no"),
        ("padding_idx=0", "sparse=given", "SGD", "sparse is given by an expression"),
        ("nn.Embedding(", "Table(", "SGD", "is not found here"),
        ("for step", "print('network:', net)\nfor step", "SGD", "net may be shown"),
        ("for step", "log('%s' % net.table)\nfor step", "SGD", "net.table may be shown"),
        ("for step", "for part in net.children():\n    print(part)\nfor step", "SGD", "part may be shown"),
        ("for step", "def tell(model):\n    log(model)\ntell(net)\nfor step", "SGD", "model may be shown"),
        ("for step", "print([net, 1])\nfor step", "SGD", "net may be shown"),
        ("for step", "print(*map(str, net.children()))\nfor step", "SGD", "net.children() may be shown"),
        ("for step", "net.apply(lambda part: print(part))\nfor step", "SGD", "part may be shown"),
        ("for step", "assert ready, net\nfor step", "SGD", "net may be shown"),
        ("for step", "raise ValueError(net)\nfor step", "SGD", "net may be shown"),
        ("net = Net()", "net = Net()\nnn.utils.parametrizations.weight_norm(net.table)", "SGD", "weight_norm may not"),
        ("for step", "torch.save({'net': net}, path)\nfor step", "SGD", "net may be shown"),
        ("for step", "late = torch.optim.RMSprop(net.parameters())\nfor step", "SGD", "RMSprop may hold"),
        ("for step", "late = Lion(net.parameters())\nfor step", "SGD", "Lion() is given parameters"),
        ("class Net", "class Own(torch.optim.Optimizer):\n    pass\nclass Net", "SGD", "an optimizer of the user's"),
        ("for step", "cycle = torch.optim.lr_scheduler.CyclicLR(optimizer)\nfor step", "SGD", "CyclicLR may not"),
        ("for step", "optimizer.param_groups[0].update(weight_decay=1)\nfor step", "SGD", "may set weight_decay"),
        ("for step", "optimizer.param_groups[0][name] = 1\nfor step", "SGD", "may be a setting"),
        ("for step", "optimizer.load_state_dict(old)\nfor step", "SGD", "load_state_dict may not"),
        ("net = Net()", "net = Net().bfloat16()", "SGD", "bfloat16 may not"),
        (".backward()", ".backward(create_graph=True)", "SGD", "create_graph may not"),
        ("for step", "norms = [getattr(p, 'grad') for p in net.parameters()]\nfor step", "SGD", "grad may not"),
    ],
)
def test_what_would_train_otherwise_or_take_no_sparse_gradients_is_left(tmp_path, old, new, optimizer, reason):
    after, left = made(tmp_path, TABLE.replace(old, new), optimizer)
    assert after == ""
    assert reason in left
