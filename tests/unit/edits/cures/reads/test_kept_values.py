"""What a step keeps for a statement that is carried out later, what it asks before, and what may not be later."""

import ast

import pytest
from tests.unit.edits.scripts import project_of
from tests.unit.report.specimens import finding

from flatout.edits.cures.reads.kept_values import KeptValues, RefusedError, is_read
from flatout.edits.finding_edit import EditPlace

LOSS = ["type(loss) is torch.Tensor"]
HEAD = "import math\nimport numpy as np\nimport torch\n"


def kept(folder, value):
    text = f"{HEAD}for n, (x, y) in enumerate(data):\n    total += {value}\n"
    project = project_of(folder, train=text)
    loop = project.script.tree.body[-1]
    values = KeptValues(EditPlace(project, project.script, loop.body[0], finding()), loop)
    return values.statement(loop.body[0], loop.body[0].value, together=True), values


@pytest.mark.parametrize(
    ("value", "later", "given", "asked"),
    [
        ("loss.item()", "read.item()", ["loss.detach().clone()"], LOSS),
        (
            "n * f(x).item()", "read * read_2.item()", ["n", "read_now.detach().clone()"],
            ["type(read_now) is torch.Tensor"],
        ),
        ("loss.item() / len(x)", "read.item() / read_2", ["loss.detach().clone()", "len(x)"], LOSS),
        ("math.exp(min(loss.item(), 9))", "math.exp(min(read.item(), 9))", ["loss.detach().clone()"], LOSS),
        (
            "y.detach().cpu()", "read.cpu()", ["y.detach().clone()"],
            ["type(y) is torch.Tensor", "y.device.type != \"cpu\""],
        ),
    ],
)  # fmt: skip
def test_what_is_kept_and_asked(tmp_path, value, later, given, asked):
    text, values = kept(tmp_path, value)
    assert text == f"total += {later}"
    assert (values.kept, values.asked, values.torch) == (given, asked, "torch")


def test_sizes_are_the_same_in_all_steps_that_are_kept(tmp_path):
    _, values = kept(tmp_path, "loss.item() * x.size(0)")
    assert values.like == ["loss.shape", "loss.dtype", "loss.device", "x.size(0)"]
    assert values.most == 64
    assert kept(tmp_path, "float(loss.cpu())")[1].most == 8


@pytest.mark.parametrize(
    "value",
    [
        "loss.item() / n", "loss.item() // y.item()", "loss.item() ** 2", "math.log(loss.item())", "int(loss.item())",
        "np.random.normal(loss.item())", "np.exp(loss.item(), out=y)", "round(loss.item())", "f(loss.item())",
        "loss.cpu().add_(1).item()", "max(*loss.tolist())", "loss.item() * scale", "math.exp(min(loss.item(), 900))",
        "sorted(loss.tolist(), key=f)",
    ],
)  # fmt: skip
def test_what_may_fail_for_some_value_or_do_more_is_refused(tmp_path, value):
    with pytest.raises(RefusedError):
        kept(tmp_path, value)


def test_reads_have_no_arguments():
    nodes = [ast.parse(each, mode="eval").body for each in ("x.item()", "x.tolist()", "x.item(0)", "x.sum()", "item()")]
    assert [is_read(each) for each in nodes] == [True, True, False, False, False]
