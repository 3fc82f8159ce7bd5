"""The modules whose call is the forward pass: found, timed, and left as they were."""

import copy
import io
import pickle
import weakref

import pytest
import torch
from tests.unit.probe.watched import FORWARD, INPUT, LOSS, STEP, Watch
from torch import nn

from flatout.probe.core.spans import FORWARD as FORWARD_SLOT
from flatout.schema.phase import Phase

X = torch.ones(2, 2)


@pytest.fixture
def w():
    with Watch() as watch:
        yield watch


def trained(w, model, steps=4, call=None):
    """Train a few steps and return the names of the modules that were called as outermost ones."""
    optimizer = w.sgd(model)
    for _ in range(steps):
        w.train_on(call or model, optimizer, X)
    return [type(module).__name__ for module in w.modules.modules()]


class Plain(nn.Module):
    """Nothing in it but what pickles by name."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(2, 4), nn.Linear(4, 1)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))


def test_a_hooked_module_pickles_and_saves_without_a_trace(w):
    model = Plain()
    assert trained(w, model) == ["Plain"]
    whole, states = io.BytesIO(), io.BytesIO()
    torch.save(model, whole)
    torch.save(model.state_dict(), states)
    for data in (pickle.dumps(model), whole.getvalue(), states.getvalue()):
        assert b"flatout" not in data
    whole.seek(0)
    restored = torch.load(whole, weights_only=False)
    assert torch.equal(restored(X), model(X))
    assert vars(pickle.loads(pickle.dumps(model))).keys() == vars(Plain()).keys()


def test_saving_leaves_the_module_hooked(w):
    model = w.model()
    optimizer = w.sgd(model)
    for number, x in enumerate(w.loader(6)):
        w.train_on(model, optimizer, x)
        if number == 3:
            torch.save(model.state_dict(), io.BytesIO())
    w.end()
    assert w.phases(5)["forward"] == FORWARD


def test_a_hooked_module_copies_as_itself(w):
    model = Plain()
    trained(w, model)
    for twin in (copy.deepcopy(model), copy.copy(model)):
        assert torch.equal(twin(X), model(X))
        with torch.no_grad():
            twin.first.weight.add_(1)
    deep = copy.deepcopy(model)
    with torch.no_grad():
        deep.second.bias.add_(5)
    assert not torch.equal(deep(X), model(X))
    assert b"flatout" not in pickle.dumps(deep)


def test_a_copy_made_of_a_hooked_module_runs_its_own_weights(w):
    model = Plain()
    trained(w, model)
    average = torch.optim.swa_utils.AveragedModel(model)
    with torch.no_grad():
        model.second.bias.add_(100)
    assert (average(X) < 50).all()


def test_the_script_s_own_hooks_are_passed(w):
    seen = []
    model = Plain()
    model.register_forward_hook(lambda *_: seen.append("hook"))
    trained(w, model, steps=5)
    assert seen == ["hook"] * 5


def test_a_module_inside_another_is_not_hooked(w):
    model = nn.Sequential(Plain(), nn.Linear(1, 1))
    assert trained(w, model) == ["Sequential"]
    assert not w.modules.calls.has(model[0])


def test_modules_called_only_through_a_container_are_found(w):
    class Task(nn.Module):
        """As a LightningModule: the loop calls `training_step`, never the module."""

        def __init__(self):
            super().__init__()
            self.parts = nn.ModuleDict({"net": w.model()})
            self.criterion = nn.MSELoss()

        def training_step(self, x):
            return self.criterion(self.parts["net"](x), torch.zeros(2, 1))

    task = Task()
    optimizer = w.sgd(task)
    for x in w.loader(12):
        task.training_step(x).backward()
        optimizer.step()
    w.end()
    assert [type(module).__name__ for module in w.modules.modules()] == ["Model"]
    assert w.phases(11)["forward"] == FORWARD


def test_a_frozen_teacher_counts_as_forward(w):
    teacher, student = w.model(), w.model()
    optimizer = w.sgd(student)
    for x in w.loader(5):
        with torch.no_grad():
            goal = teacher(x)
        (student(x) - goal).mean().backward()
        optimizer.step()
    w.end()
    assert w.phases(3)["forward"] == 2 * FORWARD
    assert w.batches() == [1] * 5


def test_frozen_parts_of_a_model_are_not_counted_twice(w):
    encoder = w.model(forward=3, backward=0).requires_grad_(False)

    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder, self.head = encoder, w.model()

        def forward(self, x):
            return self.head(x * self.encoder(x))

    model = Both()
    optimizer = w.sgd(model.head)
    for x in w.loader(5):
        w.train_on(model, optimizer, x)
    w.end()
    assert [type(module).__name__ for module in w.modules.modules()] == ["Both"]
    assert w.phases(3)["forward"] == 3 + FORWARD


def test_a_model_inside_a_dataset_is_input(w):
    tokenizer = w.model()

    def collate(samples):
        with torch.no_grad():
            return tokenizer(torch.stack(samples)).expand(-1, 2)

    model = w.model()
    optimizer = w.sgd(model)
    for x in w.loader(6, collate_fn=collate):
        w.train_on(model, optimizer, x)
    w.end()
    assert w.walls() == [STEP + FORWARD] * 6
    assert w.phases(4)["input"] == INPUT + FORWARD
    assert w.phases(4)["forward"] == FORWARD


def test_a_forward_pass_that_fails_is_closed(w):
    class Sometimes(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.calls = nn.Linear(2, 1), 0

        def forward(self, x):
            self.calls += 1
            w.clock.spend(FORWARD)
            if self.calls == 4:
                raise ValueError("bad batch")
            return self.linear(x)

    model = Sometimes()
    optimizer = w.sgd(model)
    for x in w.loader(7):
        try:
            loss = w.loss(model, x)
        except ValueError:
            continue
        loss.backward()
        optimizer.step()
    w.end()
    assert w.batches() == [1, 1, 1, 2, 1, 1]
    assert w.phases(3)["forward"] == 2 * FORWARD
    assert w.steps[3].host_parts_ns[0] == 0
    assert w.account.current != FORWARD_SLOT


def test_a_model_that_is_replaced_is_found_again(w):
    for _ in range(2):
        model = w.model()
        optimizer = w.sgd(model)
        for x in w.loader(4):
            w.train_on(model, optimizer, x)
    w.end()
    assert w.phases(7)["forward"] == FORWARD
    assert w.steps[7].host_parts_ns[1] / 1e6 == LOSS


def test_a_model_that_the_script_lets_go_is_freed(w):
    model = Plain()
    trained(w, model)
    gone = weakref.ref(model)
    w.training._known._made.clear()
    del model
    assert gone() is None
    w.modules.look(set())
    w.modules.unhook()
    assert w.modules.describe() == ()


def test_many_other_models_do_not_crowd_out_the_trained_one(w):
    others = [nn.Linear(1, 1) for _ in range(100)]
    for _ in range(3):
        model = w.model()
        assert "Model" in trained(w, model, steps=3)
    assert sum(w.modules.calls.has(other) for other in others) <= 32
    assert w.modules.calls.has(model)


def test_validation_of_a_copy_is_validation(w):
    model = w.model()
    optimizer = w.sgd(model)
    average = torch.optim.swa_utils.AveragedModel(model)
    for _ in range(3):
        for x in w.loader(10):
            w.train_on(model, optimizer, x)
        with torch.no_grad():
            for x in w.loader(2):
                w.loss(average, x)
    w.end()
    assert w.out(Phase.VALIDATION) == 6 * (INPUT + FORWARD + LOSS)


# -- torch.compile ------------------------------------------------------------------------------------------------


def counters():
    from torch._dynamo.utils import counters as found

    return {
        "breaks": sum(found["graph_break"].values()),
        "graphs": found["stats"].get("unique_graphs", 0),
        "frames": found["frames"].get("total", 0),
    }


def compiled_training(kind, steps=16):
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    torch.manual_seed(0)
    model = Plain()
    call = model
    if kind == "module":
        call = torch.compile(model, backend="eager")
    elif kind == "in place":
        model.compile(backend="eager")
    elif kind == "function":
        call = torch.compile(lambda x: model(x), backend="eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(steps):
        call(X).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return call, [parameter.detach().clone() for parameter in model.parameters()]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["module", "in place", "function"])
def test_compiled_models_break_and_recompile_no_more_than_without_us(kind):
    _, expected = compiled_training(kind)
    plain = counters()
    with Watch() as w:
        call, found = compiled_training(kind)
        assert counters() == plain
        assert w.tracker.num_steps >= 13
        assert kind == "function" or call in w.modules.modules()
    assert all(torch.equal(one, other) for one, other in zip(expected, found, strict=True))
    torch._dynamo.reset()


@pytest.mark.slow
def test_a_compiled_method_is_called_as_a_forward_pass(w):
    model = Plain()
    forward = torch.compile(model.forward, backend="eager")
    step = torch.compile(lambda x: model(x).mean(), backend="eager")
    assert w.seams.hits()["torch:compile"] == 2
    assert torch.equal(forward(X), model.forward(X))
    assert torch.equal(step(X), model.forward(X).mean())
    w.event_log.replay()
    assert w.tracker.open.forwards == 2
    torch._dynamo.reset()


@pytest.mark.slow
def test_a_compiled_model_is_called_as_one_forward_pass(w):
    model = torch.compile(Plain(), backend="eager")
    optimizer = w.sgd(model)
    for x in w.loader(5):
        w.train_on(model, optimizer, x)
    w.end()
    assert [type(module).__name__ for module in w.modules.modules()] == ["OptimizedModule"]
    assert w.modules.describe()[0].compiled
    torch._dynamo.reset()


def test_a_module_on_several_devices_says_on_how_many(w, monkeypatch):
    model = nn.DataParallel(w.model())
    assert trained(w, model) == ["DataParallel"]
    assert [facts.replicas for facts in w.modules.describe()] == [1]
    monkeypatch.setattr(model, "device_ids", [0, 1, 2])
    assert [facts.replicas for facts in w.modules.describe()] == [3]


def test_of_several_types_the_one_of_most_bytes_comes_first(w):
    model = torch.nn.Linear(2, 4)
    model.scale = torch.nn.Parameter(torch.tensor(0.5, dtype=torch.float64))
    trained(w, model, call=lambda x: model(x) * model.scale)
    (facts,) = [each for each in w.modules.describe() if each.name == "Linear"]
    assert facts.dtypes == ("float32", "float64")
