"""Why a call of a module cannot be cut, as far as the module shows it."""

import pytest
import torch
from torch import nn

from flatout.ranks.fitness import is_compiled, modes, refusal, settings, written_out


def reason(module):
    return refusal(module, list(module.modules()))


def hooked():
    module = nn.Sequential(nn.Linear(2, 2))
    module[0].register_forward_hook(lambda *args: None)
    return module


def watched():
    module = nn.Linear(2, 2)
    module.weight.register_post_accumulate_grad_hook(lambda parameter: None)
    return module


def computed():
    module = nn.Linear(2, 2)
    module._parameters["weight"] = torch.ones(2, 2, requires_grad=True) * 2
    return module


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (hooked, "hook on Linear"),
        (watched, "gradients of one rank's rows"),
        (computed, "computed from others"),
        (lambda: nn.Embedding(3, 2, sparse=True), "sparse"),
        (lambda: nn.LazyLinear(3), "take shape"),
        (lambda: torch.compile(nn.Sequential(nn.BatchNorm1d(2))), "compiled, with BatchNorm1d"),
        (lambda: torch.compile(nn.Sequential(nn.Dropout(0.1))), "compiled, with Dropout"),
    ],
)
def test_what_speaks_against_a_trial_is_named(make, word):
    assert word in reason(make())


@pytest.mark.parametrize(
    "module",
    [
        nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)),
        nn.utils.parametrizations.weight_norm(nn.Linear(2, 2)),
        torch.compile(nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.1))).eval(),
    ],
)
def test_what_is_ordinary_is_tried(module):
    assert reason(module) == ""


def test_what_torch_jit_has_compiled_is_left_whole():
    scripted = torch.jit.script(nn.Linear(2, 1))
    assert "torch.jit" in reason(scripted)
    assert "torch.jit" in reason(nn.Sequential(scripted, nn.ReLU()))


class Staged(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.stage, self.kind, self.scale = nn.Linear(2, 2), 1, "wide", 0.5


def test_settings_are_plain_values_of_modules_that_are_not_of_torch():
    modules = list(nn.Sequential(Staged(), nn.Dropout(0.2)).modules())
    assert settings(modules) == (("stage", 1), ("kind", "wide"))
    modules[1].stage = 2
    assert settings(modules) == (("stage", 2), ("kind", "wide"))


def test_a_module_compiled_in_place_is_compiled_and_so_is_what_holds_it():
    inner = nn.Linear(2, 2)
    module = nn.Sequential(inner)
    assert not is_compiled(module, list(module.modules()))
    inner.compile(backend="eager")
    assert is_compiled(module, list(module.modules()))


def test_a_compiled_module_is_known_by_what_it_was_made_of():
    module = nn.Linear(2, 2)
    assert written_out(torch.compile(module)) is module
    assert written_out(module) is module
    assert modes([module, module.eval()]) == (False, False)
