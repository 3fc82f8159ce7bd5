"""A call tried on copies: what speaks against cutting it, and what a trial leaves behind."""

import io
import logging
import sys
from types import FunctionType

import numpy
import pytest
import torch
from tests.unit.ranks.in_threads import on_ranks
from torch import nn
from torch.utils._pytree import tree_flatten, tree_unflatten

from flatout.ranks.local_rows import HERE, OwnRows
from flatout.ranks.proof import CutForm, CutResult, NotTried, prove
from flatout.ranks.whole_call import Call, Silence

LOGGER = logging.getLogger("script")
HISTORY, COUNTS = {"sizes": []}, numpy.zeros(2)
TABLE = nn.Parameter(torch.ones(3))


def run(module, leaves, structure):
    args, kwargs = tree_unflatten(leaves, structure)
    return module(*args, **kwargs)


def cut(module, leaves, structure, plan):
    total = plan.rows([tuple(leaf.shape) for leaf in leaves])
    HERE.rows = OwnRows(total, 0, total, 0, (total,), plan.draws)
    try:
        return CutResult(*tree_flatten(run(module, leaves, structure)), None)
    finally:
        HERE.rows = None


def proven(module, *args):
    """What a group of one rank finds, whose rows are all there are."""
    call = Call(module, *tree_flatten((args, {})))
    return on_ranks(1, lambda group: prove(call, run, cut, lambda result, dims: result.parts, group))[0]


class Calling(nn.Module):
    def __init__(self, act):
        super().__init__()
        self.inner, self.act = nn.Linear(3, 3), act

    def forward(self, x):
        return self.act(self, self.inner(x))


def test_a_module_of_independent_rows_is_cut():
    assert isinstance(proven(Calling(lambda self, x: x.relu()), torch.randn(4, 3)), CutForm)


@pytest.mark.parametrize(
    ("act", "word"),
    [
        (lambda self, x: x + TABLE, "none of its parameters"),
        (lambda self, x: (x, TABLE)[0] * TABLE, "none of its parameters"),
        (lambda self, x: TABLE, "none of its parameters"),
        (lambda self, x: setattr(self, "calls", getattr(self, "calls", 0) + 1) or x, "attribute calls"),
        (lambda self, x: x / 0, "not finite"),
        (lambda self, x: {"found": object(), "x": x}, "returns a object"),
        (lambda self, x: logging.getLogger("script").warning("rows") or x, "prints or logs"),
        (lambda self, x: sys.stderr.write("rows") and x, "prints or logs"),
        (lambda self, x: self.inner.weight.data.mul_(0.5) is None or x, "its parameter inner.weight"),
        (lambda self, x: torch.no_grad()(self.inner.weight.clamp_)(-99, 99) is None or x, "writes to its parameters"),
        (lambda self, x: x.sum().backward() or x.detach(), "calls backward itself"),
        (lambda self, x: HISTORY["sizes"].append(len(x)) or x, "writes to a list"),
        (lambda self, x: COUNTS.__iadd__(len(x)) is None or x, "writes to an array"),
    ],
)
def test_what_is_not_tried_is_told_apart_from_rows_that_depend_on_each_other(act, word):
    found = proven(Calling(act), torch.randn(4, 3))
    assert isinstance(found, NotTried) and word in found, found


def test_the_gradients_of_the_script_stay_as_they_are():
    module = Calling(lambda self, x: x * TABLE)
    TABLE.grad, module.inner.weight.grad = torch.full((3,), 2.0), torch.ones(3, 3)
    proven(module, torch.randn(4, 3))
    assert TABLE.grad.tolist() == [2.0] * 3 and module.inner.weight.grad.sum() == 9
    TABLE.grad = None


def test_a_trial_says_nothing_and_moves_no_stream(capsys, caplog):
    def act(self, x):
        print("called")
        logging.getLogger("script").warning("called")
        return x + torch.randn(3)

    before = torch.get_rng_state()
    assert "it prints" in proven(Calling(act), torch.randn(4, 3))
    assert capsys.readouterr().out == "" and caplog.text == ""
    logging.getLogger("script").warning("after it")
    assert "after it" in caplog.text
    torch.randn(4, 3)
    assert not torch.equal(before, torch.get_rng_state())


def test_what_a_logger_would_not_show_is_no_output():
    assert isinstance(proven(Calling(lambda self, x: LOGGER.debug("not shown") or x), torch.randn(4, 3)), CutForm)
    assert (HISTORY, COUNTS.tolist()) == ({"sizes": []}, [0, 0])


def test_a_warning_is_shown_and_is_no_output():
    shown = io.StringIO()
    silence = Silence(shown)
    FunctionType((lambda out: out.write("seldom")).__code__, {"__name__": "warnings"})(silence)
    assert shown.getvalue() == "seldom" and not silence.has_heard
    silence.write("often")
    assert silence.has_heard and shown.getvalue() == "seldom"
