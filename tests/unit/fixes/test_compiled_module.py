"""The outermost module compiled in place, where shapes come often, and dropped where it cannot be."""

import gc
import io
import weakref

import pytest
import torch
from tests.unit.fixes.training import Process, train, under
from torch import nn

from flatout.fixes.compiled_module import FIX
from flatout.schema.phase import STEP_PHASES, Phase
from flatout.schema.run import Environment, Header, ModelFacts, Run, Step

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
]


@pytest.fixture
def eagerly(monkeypatch):
    """Let Dynamo take the graphs and run them without generating code, which takes 10 s each."""
    graphs = []

    def compiler(graph, inputs, *, options):
        assert options["fallback_random"]
        graphs.append(graph)
        return graph.forward

    monkeypatch.setattr("flatout.fixes.compiled_module._inductor", compiler)
    yield graphs
    torch._dynamo.reset()


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.layer, self.drop = nn.BatchNorm1d(4), nn.Linear(4, 4), nn.Dropout(0.5)

    def forward(self, x):
        return self.drop(torch.relu(self.layer(self.norm(x))))


def steps(model, sizes, optimizer=None):
    torch.manual_seed(0)
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1)
    for size in sizes:
        optimizer.zero_grad()
        model(torch.rand(size, 4)).sum().backward()
        optimizer.step()
    return [each.detach().clone() for each in model.state_dict().values()]


@pytest.mark.slow
def test_real_compiled_code_gives_the_same_within_rounding_with_the_same_dropout():
    torch.manual_seed(0)
    plain = Small()
    compiled = Small()
    compiled.load_state_dict(plain.state_dict())
    wanted = steps(plain, [8] * 5)
    with under("compiled-module") as process:
        got = steps(compiled, [8] * 5)
        assert process.site.hits == {"forward pass": 4}
        file = io.BytesIO()
        torch.save(compiled, file)
        assert b"dynamo" not in file.getvalue()
    for one, other in zip(got, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
    assert list(compiled.state_dict()) == list(plain.state_dict())
    torch._dynamo.reset()


def test_shapes_that_come_rarely_run_as_ever(eagerly):
    with under("compiled-module") as process:
        steps(Small(), ([8] * 20 + [3]) * 2)
        assert process.site.hits == {"forward pass": 39}
    assert len(eagerly) == 1


def test_no_more_than_three_shapes_are_compiled(eagerly):
    with under("compiled-module"):
        steps(Small(), [2, 3, 4, 5, 6] * 6)
    assert len(eagerly) == 3


def test_evaluation_is_not_compiled_and_switching_needs_no_new_graph(eagerly):
    model = Small()
    with under("compiled-module") as process:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        steps(model, [8] * 3, optimizer)
        process.site.disable()
        steps(model, [8] * 3, optimizer)
        process.site.enable()
        steps(model, [8] * 3, optimizer)
        model.eval()
        with torch.no_grad():
            model(torch.rand(8, 4))
        assert process.site.hits == {"forward pass": 5}
    assert len(eagerly) == 1


def test_what_cannot_be_compiled_runs_as_ever_from_the_same_state(monkeypatch):
    def broken(graph, inputs, *, options):
        raise RuntimeError("no compiler here\nmore of it")

    torch.manual_seed(0)
    plain, model = Small(), Small()
    model.load_state_dict(plain.state_dict())
    wanted = steps(plain, [8] * 4)
    monkeypatch.setattr("flatout.fixes.compiled_module._inductor", broken)
    with under("compiled-module") as process:
        got = steps(model, [8] * 4)
        assert process.site.failure == "RuntimeError: no compiler here"
        assert not process.site.enabled
    assert all(map(torch.equal, got, wanted))


def test_where_torch_cannot_compile_at_all_the_training_goes_on(monkeypatch):
    def compile(function, **_):
        raise RuntimeError("not on this Python")

    monkeypatch.setattr(torch, "compile", compile)
    with under("compiled-module") as process:
        steps(Small(), [8] * 4)
        assert process.site.failure == "RuntimeError: not on this Python"


def test_an_error_of_the_scripts_own_is_raised_and_the_fix_stays(eagerly):
    class Own(Small):
        def forward(self, x):
            if x.shape[0] == 5:
                raise ValueError("five")
            return super().forward(x)

    with under("compiled-module") as process:
        steps(model := Own(), [8] * 3)
        for _ in range(3):
            with pytest.raises(ValueError, match="five"):
                model(torch.rand(5, 4))
        assert not process.site.failure


def test_what_a_forward_pass_does_before_it_fails_is_done_once(eagerly):
    class Counting(Small):
        calls = 0

        def forward(self, x):
            self.calls += 1
            h = super().forward(x)
            if (h.sum() > 1e9).item() or self.calls in (2, 3, 7):
                raise ValueError("now and then")
            return h

    plain, model = Counting(), Counting()
    model.load_state_dict(plain.state_dict())

    def train():
        torch.manual_seed(0)
        optimizer, failed = torch.optim.SGD(one.parameters(), lr=0.1), 0
        for _ in range(9):
            try:
                one(torch.rand(8, 4)).sum().backward()
            except ValueError:
                failed += 1
            optimizer.step()
        return failed, one.calls, [*one.state_dict().values()]

    one = plain
    wanted = train()
    with under("compiled-module") as process:
        one = model
        found = train()
        assert process.site.hits
    assert found[:2] == wanted[:2] == (3, 9)
    assert all(map(torch.equal, found[2], wanted[2]))


def test_modules_that_are_compiled_already_are_left_alone(eagerly):
    model = nn.Linear(4, 4)
    model.compile(backend="eager")
    with under("compiled-module") as process:
        steps(model, [8] * 3)
        assert process.site.hits == {}


def test_autocast_by_another_fix_lies_around_the_compiled_call(eagerly):
    for order in (["compiled-module", "bf16-autocast"], ["bf16-autocast", "compiled-module"]):
        eagerly.clear()
        with Process(*((name, {}) for name in order)) as process:
            train(model=nn.Sequential(nn.Flatten(), nn.Linear(192, 5)))
            assert all(site.hits["forward pass"] >= 2 for site in process.sites)
        assert len(eagerly) == 1


def test_a_module_dies_when_the_script_lets_it_go(eagerly):
    with under("compiled-module"):
        model = Small()
        steps(model, [8] * 3)
        ref = weakref.ref(model)
        del model
        gc.collect()
        assert ref() is None


def run_with(forward, host, kind="cpu", waiting=0):
    phases = [0] * len(STEP_PHASES)
    phases[STEP_PHASES.index(Phase.FORWARD)], phases[STEP_PHASES.index(Phase.HOST)] = forward, host
    phases[STEP_PHASES.index(Phase.INPUT)] = waiting
    return Run(
        header=Header(script="train.py"), environment=Environment(device_kind=kind),
        steps=(Step(0, sum(phases), tuple(phases)),) * 3, models=(ModelFacts(name="Net"),),
    )  # fmt: skip


def test_it_is_offered_where_compute_dominates_and_a_compiler_is_there(monkeypatch):
    assert FIX.choices(run_with(9, 1)) == ({"mode": "default"},)
    assert FIX.choices(run_with(4, 6)) == ()
    assert len(FIX.choices(run_with(9, 1, "cuda"))) == 2
    assert len(FIX.choices(run_with(9, 1, "cuda", waiting=90))) == 2
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("CXX", raising=False)
    assert FIX.choices(run_with(9, 1)) == ()
