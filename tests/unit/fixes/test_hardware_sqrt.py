"""Square roots by the processor: weights equal up to rounding, all else to the bit, and one fix beside the other."""

import dataclasses
import functools
import subprocess
import sys

import numpy
import pytest
import torch
from tests.unit.fixes.test_one_pass_optimizer import (
    HITS,
    LOOPS,
    Net,
    all_settings,
    one_pass,
    train,
    unhooked,
)
from tests.unit.fixes.training import Process, same_bits, under

__all__ = ["unhooked"]  # a fixture


@pytest.mark.parametrize(("name", "given"), [each for each in all_settings() if each[0] != "SGD"])
def test_the_processors_roots_change_weights_by_roundings_and_nothing_else(name, given):
    steps, make = 3, lambda ps: getattr(torch.optim, name)(ps, **given)
    plain, plain_optimizer, _ = train(make, steps=1)
    with under("hardware-sqrt") as process:
        model, optimizer, _ = train(make, steps=1)
        assert same_bits(optimizer.state_dict(), plain_optimizer.state_dict())
        train(make, steps=steps)
        assert sum(process.site.hits.values()) == 1 + steps
    torch.manual_seed(0)
    for one, other, before in zip(model.parameters(), plain.parameters(), Net().parameters(), strict=True):
        assert one_pass._is_close(one.detach(), other.detach(), before.detach())


def test_the_processors_roots_are_the_nearest_numbers(monkeypatch):
    """The weights are those of a step whose roots NumPy takes, which are rounded to the nearest."""

    def root(each):
        return torch.from_numpy(numpy.asarray(numpy.sqrt(each.detach().numpy())))

    monkeypatch.setattr(torch.Tensor, "sqrt", root)
    numpys, _, _ = train(torch.optim.Adam, steps=3)
    monkeypatch.undo()
    with under("hardware-sqrt"):
        model, _, _ = train(torch.optim.Adam, steps=3)
    assert same_bits(model.state_dict(), numpys.state_dict())


def test_a_step_that_is_further_off_than_roundings_is_torchs(monkeypatch):
    original = LOOPS._single_tensor_adam

    def otherwise(params, *lists, **settings):
        original(params, *lists, **settings)
        for each in params:
            each.mul_(1 + 3e-6)

    monkeypatch.setattr(LOOPS, "_single_tensor_adam", functools.wraps(original)(otherwise))
    with under("hardware-sqrt") as process:
        train(torch.optim.Adam)
        assert not process.site.hits


def test_one_fix_before_the_other_acts_alone_and_leaves_the_short_way_to_it_when_it_is_off(monkeypatch):
    asked, original = [], torch.optim.Adam._init_group
    monkeypatch.setattr(torch.optim.Adam, "_init_group", lambda *given: asked.append(1) or original(*given))
    with Process(("one-pass-optimizer", {}), ("hardware-sqrt", {})) as process:
        exact, rounded = process.sites
        train(torch.optim.Adam, steps=12)
        assert len(asked) == 1
        rounded.disable()
        train(torch.optim.Adam, after=lambda step, *_: rounded.enable() if step == 1 else None)
        assert rounded.hits == {HITS["Adam"]: 12 + 4}
        rounded.disable()
        before, asked[:] = dict(exact.hits), []
        model, _, _ = train(torch.optim.Adam)
        assert len(asked) == 1
        assert sum(exact.hits.values()) - sum(before.values()) == 6
    plain, _, _ = train(torch.optim.Adam)
    assert same_bits(model.state_dict(), plain.state_dict())


def test_proofs_of_one_are_not_counted_as_steps_of_the_other():
    with Process(("one-pass-optimizer", {}), ("hardware-sqrt", {})) as process:
        train(torch.optim.Adam)
        assert [site.hits for site in process.sites] == [{}, {HITS["Adam"]: 6}]


def test_the_exact_one_stays_exact_whatever_stands_behind_it():
    with Process(("hardware-sqrt", {}), ("one-pass-optimizer", {})) as process:
        rounded, exact = process.sites
        train(torch.optim.Adam)  # proven while both are on
        rounded.disable()
        model, _, _ = train(torch.optim.Adam, after=lambda step, *_: rounded.enable() if step == 2 else None)
        assert exact.hits == {HITS["Adam"]: 12} and not rounded.hits
    plain, _, _ = train(torch.optim.Adam)
    assert same_bits(model.state_dict(), plain.state_dict())


LINES = """
import sys
import torch
import flatout

def train():
    torch.manual_seed(0)
    model = torch.nn.Linear(400, 300)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for _ in range(5):
        optimizer.zero_grad()
        model(torch.randn(8, 400)).square().mean().backward()
        optimizer.step()
    return model.weight.detach()

plain = train()
for each in sys.argv[1:]:
    flatout.one_pass_optimizers(hardware_sqrt=each == "rounded")
from flatout.optimizers.one_pass import OnePass
carried_out, made = OnePass.carry_out, []
OnePass.carry_out = lambda self, *given: made.append((self._step.rounded, carried_out(self, *given))) or made[-1][1]
ours = train()
print(torch.equal(ours, plain), torch.allclose(ours, plain, rtol=1e-4, atol=1e-6), set(made), len(made))
"""


@pytest.mark.parametrize("lines", [["rounded"], ["exact", "rounded"], ["rounded", "exact"], ["exact", "exact"]])
def test_the_line_that_comes_last_acts(lines):
    done = subprocess.run(
        [sys.executable, "-c", LINES, *lines], capture_output=True, text=True, timeout=60, check=False
    )
    rounded = lines[-1] == "rounded"
    assert done.stdout.split(" ", 1)[1] == f"True {{({rounded}, True)}} 5\n", done.stderr
    assert rounded or done.stdout.startswith("True")


@pytest.mark.parametrize("wraps", [functools.wraps, lambda original: lambda function: function])
def test_what_a_script_puts_between_two_of_ours_is_called(wraps):
    """And neither fix takes the short way past it."""
    called = []
    with under("one-pass-optimizer"):
        original = LOOPS._single_tensor_adam

        def clamped(params, *lists, **settings):
            called.append(1)
            original(params, *lists, **settings)
            for each in params:
                each.clamp_(-0.01, 0.01)

        try:
            LOOPS._single_tensor_adam = wraps(original)(clamped)
            with under("hardware-sqrt"):
                model, _, _ = train(torch.optim.Adam)
        finally:
            LOOPS._single_tensor_adam = original
    assert len(called) >= 6
    assert max(each.abs().max() for name, each in model.named_parameters() if name != "frozen") <= 0.01


@dataclasses.dataclass
class Called:
    """A function that cannot be hashed."""

    function: object

    def __call__(self, *args, **kwargs):
        return self.function(*args, **kwargs)


def test_a_function_that_cannot_be_hashed_is_called(monkeypatch):
    with under("one-pass-optimizer") as process:
        monkeypatch.setattr(LOOPS, "adam", Called(LOOPS.adam))
        train(torch.optim.Adam)
        assert process.site.hits == {HITS["Adam"]: 6}


class Doubled(dict):
    """A state that gives something else than what lies in it."""

    def __getitem__(self, key):
        return super().__getitem__(key) * 2 if key == "exp_avg" else super().__getitem__(key)


def test_a_state_that_is_no_plain_dict_is_read_by_torch():
    def put(step, model, optimizer):
        if step == 1:
            for each in model.parameters():
                if each in optimizer.state:
                    optimizer.state[each] = Doubled(optimizer.state[each])

    plain, _, _ = train(torch.optim.Adam, after=put)
    with under("one-pass-optimizer"):
        model, _, _ = train(torch.optim.Adam, after=put)
    assert same_bits(model.state_dict(), plain.state_dict())


def test_weights_are_close_by_roundings_only():
    one = torch.tensor([1.0, 1.0, float("inf"), float("-inf"), float("nan"), 1.0, 0.0])
    near = one_pass._is_close
    assert near(one, one, torch.zeros(7)) and near(one, one * (1 + 2**-22), torch.ones(7))
    for place, value in enumerate([1 + 2**-19, float("inf"), 1.0, float("inf"), 1.0, float("nan"), 1e-12]):
        other = one.clone()
        other[place] = value
        assert not near(one, other, one) and not near(other, one, one)
