"""torch's loops in one pass: the same bits whatever the settings, and torch's own step wherever that is not shown.

Modules: flatout.optimizers.kinds, flatout.optimizers.one_pass, flatout.optimizers.short_step.
"""

import copy
import functools
import gc
import importlib
import itertools
import pickle
import subprocess
import sys
import weakref

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.unit.fixes.training import Images, same_bits, under

kinds = pytest.importorskip("flatout.optimizers.kinds", reason="flatout was installed without a C compiler")
one_pass = importlib.import_module("flatout.optimizers.one_pass")

LOOPS = importlib.import_module("torch.optim.adam")
HITS = {"Adam": "torch.optim.adam.adam", "AdamW": "torch.optim.adam.adam", "SGD": "torch.optim.sgd.sgd"}


class Net(torch.nn.Module):
    """Weights of sizes with and without a rest to a vector, one of a size for several threads, and a frozen one."""

    def __init__(self, wide=300):
        super().__init__()
        self.table = torch.nn.Embedding(11, 3)
        self.first, self.second = torch.nn.Linear(3, 37), torch.nn.Linear(37, wide)
        self.wide, self.scale = torch.nn.Linear(wide, wide), torch.nn.Parameter(torch.tensor(0.5))
        self.frozen = torch.nn.Parameter(torch.ones(4), requires_grad=False)

    def forward(self, rows):
        hidden = self.first(self.table(rows)).relu()
        return (self.wide(self.second(hidden).relu()) * self.scale).square().mean()


def train(make, steps=6, after=lambda *_: None, net=Net):
    torch.manual_seed(0)
    model = net()
    optimizer, loss = make(model.parameters()), torch.zeros(())
    for step in range(steps):
        optimizer.zero_grad()
        loss = model(torch.randint(0, 11, (8,)))
        loss.backward()
        optimizer.step()
        after(step, model, optimizer)
    return model, optimizer, loss.item()


def state_of(model, optimizer):
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict()}


@pytest.fixture(autouse=True)
def unhooked(monkeypatch):
    """Take torch's hooks from around the steps, as they are before a process makes its first optimizer."""
    for kind in (torch.optim.Adam, torch.optim.SGD):
        monkeypatch.setattr(kind, "step", bare(kind.step))
    monkeypatch.delattr(torch.optim.AdamW, "step", raising=False) if "step" in vars(torch.optim.AdamW) else None
    yield
    if "step" in vars(torch.optim.AdamW):
        del torch.optim.AdamW.step


def bare(step):
    while getattr(step, "hooked", False):
        step = step.__wrapped__
    return step


def assert_same(make, hits=None, **options):
    """Train as it is and under the fix; return how often it acted."""
    plain, plain_optimizer, plain_loss = train(make, **options)
    with under("one-pass-optimizer") as process:
        model, optimizer, loss = train(make, **options)
        acted = sum(process.site.hits.values())
    assert loss == plain_loss
    assert same_bits(state_of(model, optimizer), state_of(plain, plain_optimizer))
    assert hits is None or acted == hits
    return acted


SETTINGS = {
    "Adam": {"lr": [1e-3], "betas": [(0.9, 0.999), (0.4, 0.5), (0.1, 0.0)], "eps": [1e-8, 1e-3]},
    "SGD": {"lr": [0.1], "momentum": [0, 0.9, 0.3], "dampening": [0, 0.25], "nesterov": [False, True]},
}
COMMON = {"weight_decay": [0, 0.01, 1], "maximize": [False, True]}
SETTINGS["AdamW"] = SETTINGS["Adam"]


def all_settings():
    for name, lists in SETTINGS.items():
        for values in itertools.product(*(lists | COMMON).values()):
            given = dict(zip(lists | COMMON, values, strict=True))
            if not (given.get("nesterov") and (given["momentum"] == 0 or given["dampening"] != 0)):
                yield name, given


@pytest.mark.parametrize(("name", "given"), list(all_settings()))
@pytest.mark.few(8)
@pytest.mark.slow
def test_every_combination_of_settings_gives_torchs_bits(name, given):
    steps = 4
    first = int(name == "SGD")  # the step that makes the momenta
    nothing = name == "SGD" and not given["momentum"]  # to do but one operation or two
    hits = 0 if nothing else steps - first
    assert_same(lambda ps: getattr(torch.optim, name)(ps, **given), hits=hits, steps=steps)


def test_torchs_own_step_is_asked_once_only(monkeypatch):
    asked, original = [], torch.optim.Adam._init_group
    monkeypatch.setattr(torch.optim.Adam, "_init_group", lambda *given: asked.append(1) or original(*given))
    with under("one-pass-optimizer") as process:
        train(torch.optim.Adam)
        assert process.site.hits == {HITS["Adam"]: 6}
    assert len(asked) == 1


@pytest.mark.parametrize("name", HITS)
@pytest.mark.slow
def test_optimizers_made_before_the_fix_came_make_their_steps_so_too(name):
    getattr(torch.optim, name)([torch.nn.Parameter(torch.ones(1))])  # torch calls hooks around its class from now on
    more = {"momentum": 0.9} if name == "SGD" else {"weight_decay": 0.1}
    assert assert_same(lambda ps: getattr(torch.optim, name)(ps, lr=0.1, **more)) == 6 - (name == "SGD")


def test_a_group_whose_state_or_gradients_are_missing_waits_for_them():
    def make(parameters):
        first, *rest = (each for each in parameters if each.requires_grad)
        return torch.optim.Adam([{"params": [first]}, {"params": rest, "lr": 0.1}], lr=0.01)

    def change(step, model, optimizer):
        model.first.requires_grad_(step not in (1, 2))
        if step == 3:
            del optimizer.state[model.second.weight]

    assert assert_same(make, steps=8, after=change) == 16


def test_a_closure_is_called_once_a_step():
    calls = []

    def run():
        torch.manual_seed(0)
        model = torch.nn.Linear(3, 1)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)

        def closure():
            calls.append(1)
            optimizer.zero_grad()
            loss = model(torch.ones(2, 3)).sum()
            loss.backward()
            return loss

        return [optimizer.step(closure).item() for _ in range(4)], model.state_dict()

    plain = run()
    with under("one-pass-optimizer") as process:
        assert same_bits(run(), plain)
        assert process.site.hits == {HITS["Adam"]: 4}
    assert len(calls) == 8


@pytest.mark.parametrize("beta1", [0.0, 1e-9])
@pytest.mark.parametrize("given", [{}, {"weight_decay": 0.01}, {"maximize": True}], ids=str)
@pytest.mark.slow
def test_a_first_average_that_forgets_at_once_is_torchs(beta1, given):
    """torch's own vectors and their ends disagree about the sign of a zero there."""

    def run():
        draws = torch.Generator().manual_seed(0)
        mask = (torch.rand(5003, generator=draws) > 0.5).float()
        weight = torch.nn.Parameter(torch.randn(5003, generator=draws) * mask)
        optimizer = torch.optim.Adam([weight], lr=0.01, betas=(beta1, 0.99), **given)
        for _ in range(5):
            weight.grad = torch.randn(5003, generator=draws) * mask
            optimizer.step()
        return weight, optimizer.state_dict()

    plain = run()
    with under("one-pass-optimizer") as process:
        assert same_bits(run(), plain)
        assert process.site.hits == {}


def warm(kind=torch.optim.Adam, **settings):
    """Return a weight of six numbers and its optimizer after two steps."""
    weight = torch.nn.Parameter(torch.arange(1.0, 7.0).reshape(2, 3))
    optimizer = kind([weight], lr=0.1, **settings)
    for _ in range(2):
        weight.grad = torch.ones(2, 3)
        optimizer.step()
    return weight, optimizer


def shrink(weight, optimizer):
    optimizer.state[weight]["exp_avg"].resize_(3)


def other_type(weight, optimizer):
    average = optimizer.state[weight]["exp_avg"]
    average.data = average.data.view(torch.int32)


def expanded(weight, optimizer):
    average = optimizer.state[weight]["exp_avg"]
    average.data = average.data[:1].expand(2, 3)


def transposed(weight, optimizer):
    average = optimizer.state[weight]["exp_avg"]
    average.data = average.data.reshape(3, 2)


def negated(weight, optimizer):
    average = optimizer.state[weight]["exp_avg"]
    average.data = torch._neg_view(average.data)


def same_place_other_order(weight, optimizer):
    average = optimizer.state[weight]["exp_avg"]
    average.data = average.data.as_strided((2, 3), (1, 2))


def rate_of_no_float(weight, optimizer):
    optimizer.param_groups[0]["lr"] = 1e39


def counter_before_the_first(weight, optimizer):
    optimizer.state[weight]["step"].fill_(-1)


def differentiable_by_default(weight, optimizer):
    optimizer.defaults["differentiable"] = True


def counter_is_a_number(weight, optimizer):
    optimizer.state[weight]["step"] = 3.0


BETWEEN = [
    shrink, other_type, expanded, transposed, negated, same_place_other_order, rate_of_no_float,
    counter_before_the_first, differentiable_by_default, counter_is_a_number,
]  # fmt: skip


@pytest.mark.parametrize("change", BETWEEN)
@pytest.mark.slow
def test_what_a_script_does_between_two_steps_ends_as_it_would(change):
    def run():
        weight, optimizer = warm()
        change(weight, optimizer)
        try:
            optimizer.step()
        except Exception as error:
            return type(error), str(error)
        return weight.detach(), [*optimizer.state[weight].values()]

    plain = run()
    with under("one-pass-optimizer") as process:
        ours = run()
        assert process.site.hits == {HITS["Adam"]: 2}
    assert ours == plain if isinstance(plain[0], type) else same_bits(ours, plain)


def test_state_that_was_made_in_inference_mode_is_torchs():
    def run():
        with torch.inference_mode():
            weight, optimizer = warm()
        weight = torch.nn.Parameter(torch.ones(2, 3))
        optimizer.param_groups[0]["params"], state = [weight], next(iter(optimizer.state.values()))
        optimizer.state[weight] = state
        weight.grad = torch.ones(2, 3)
        with pytest.raises(RuntimeError, match="inference tensor"):
            optimizer.step()

    run()
    with under("one-pass-optimizer"):
        run()


def sgd(weight, gradient, momentum):
    with torch.no_grad():
        importlib.import_module("torch.optim.sgd").sgd(
            [weight], [gradient], [momentum], weight_decay=0.1, momentum=0.9, lr=0.1, dampening=0.0, nesterov=False,
            maximize=False,
        )  # fmt: skip
    return weight


def traced():
    with torch.no_grad():
        return torch.jit.trace(sgd, (torch.arange(6.0), torch.ones(6), torch.zeros(6)), check_trace=False)(
            torch.arange(6.0), torch.ones(6), torch.ones(6)
        )


def functionalized():
    return torch.func.functionalize(lambda w, g: sgd(w.clone(), g, w.clone() * 0))(torch.arange(6.0), torch.ones(6))


def forward_mode():
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(torch.arange(6.0), torch.ones(6))
        gradient = torch.autograd.forward_ad.make_dual(torch.ones(6), torch.ones(6))
        return torch.autograd.forward_ad.unpack_dual(sgd(dual, gradient, torch.zeros(6))).tangent


def scripted():
    torch.jit.script(importlib.import_module("torch.optim.sgd").sgd)
    return torch.zeros(0)


@pytest.mark.parametrize("run", [traced, functionalized, forward_mode, scripted])
def test_what_torch_records_or_transforms_are_its_own_operations(run):
    plain = run()
    with under("one-pass-optimizer"):
        assert same_bits(run(), plain)


def test_a_schedule_that_makes_new_settings_each_step_is_proven_so_often_and_then_torchs(monkeypatch):
    monkeypatch.setattr(one_pass, "_MOST_PROVEN", 4)

    def cycle(step, model, optimizer):
        optimizer.param_groups[0]["betas"] = (0.9 - step / 100, 0.999)

    assert_same(torch.optim.Adam, steps=10, after=cycle, hits=5)  # the first two steps are made with the same


def test_a_subclass_of_tensors_is_not_touched():
    class Shy(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            if func is torch.Tensor.data_ptr:
                raise TypeError("no pointers")
            return super().__torch_function__(func, types, args, kwargs or {})

    def run():
        weight = torch.ones(3).as_subclass(Shy).requires_grad_()
        optimizer = torch.optim.Adam([weight], lr=0.1)
        for _ in range(3):
            weight.grad = torch.ones(3)
            optimizer.step()
        return weight.detach().as_subclass(torch.Tensor)

    plain = run()
    with under("one-pass-optimizer") as process:
        assert same_bits(run(), plain)
        assert process.site.hits == {}


def test_what_a_script_puts_on_the_way_to_torchs_loop_is_called(monkeypatch):
    called, original = [], LOOPS.adam
    with under("one-pass-optimizer"):
        monkeypatch.setattr(LOOPS, "adam", lambda *lists, **more: called.append(1) or original(*lists, **more))
        train(torch.optim.Adam)
    assert len(called) == 6


FLUSHED = """
import importlib, sys
import torch
import flatout

torch.set_num_threads(2)
flushes = torch.set_flush_denormal(True)
torch.ones(1_000_000).add_(1)  # threads of torch begin, and take that with them
torch.set_flush_denormal(False)

def train():
    weight = torch.nn.Parameter(torch.full((200_000,), 1e-38))
    optimizer = torch.optim.SGD([weight], lr=0.1, momentum=0.9)
    for _ in range(6):
        weight.grad = torch.full((200_000,), 1e-38)
        optimizer.step()
    return weight.detach()

plain = train()
flatout.one_pass_optimizers()
print(torch.equal(train(), plain) or not flushes)
"""


@pytest.mark.slow
def test_denormals_that_only_some_threads_flush_come_out_as_torchs():
    done = subprocess.run([sys.executable, "-c", FLUSHED], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "True\n"


@settings(max_examples=examples(60), deadline=None)
@given(
    sizes=st.lists(st.integers(0, 70_000) | st.integers(0, 200), min_size=1, max_size=6),
    name=st.sampled_from(["Adam", "AdamW", "SGD"]),
    scale=st.sampled_from([1e-30, 1e-12, 1.0, 1e12]),
    decay=st.sampled_from([0.0, 0.1]),
    threads=st.integers(1, 3),
)
@pytest.mark.slow
def test_tensors_of_any_size_and_numbers_of_any_size_give_torchs_bits(sizes, name, scale, decay, threads):
    def run():
        draws = torch.Generator().manual_seed(1)
        weights = [torch.nn.Parameter(torch.randn(size, generator=draws)) for size in sizes]
        more = {"momentum": 0.9} if name == "SGD" else {}
        optimizer = getattr(torch.optim, name)(weights, lr=1e-2, weight_decay=decay, **more)
        for _ in range(4):
            for each in weights:
                each.grad = torch.randn(each.shape, generator=draws) * scale
                each.grad[each.grad.abs() < 0.1 * scale] = 0
            optimizer.step()
        return weights, [optimizer.state[each] for each in weights]

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        plain = run()
        with under("one-pass-optimizer") as process:
            assert same_bits(run(), plain)
            assert sum(process.site.hits.values()) >= 3 or not any(sizes)
    finally:
        torch.set_num_threads(before)


def test_numbers_that_are_none_infinite_or_of_less_than_full_precision_come_out_as_torchs():
    def run():
        values = torch.tensor([float("inf"), -float("inf"), float("nan"), 1e-40, -1e-42, 0.0, -0.0, 3e38] * 9)
        weight = torch.nn.Parameter(values.flip(0).clone())
        optimizer = torch.optim.Adam([weight], lr=0.1, weight_decay=0.1)
        for _ in range(5):
            weight.grad = values.roll(3).clone()
            optimizer.step()
        return [torch.where(each.isnan(), 7.0, each) for each in (weight.detach(), *optimizer.state[weight].values())]

    plain = run()
    with under("one-pass-optimizer") as process:
        assert same_bits(run(), plain)
        assert process.site.hits == {HITS["Adam"]: 5}


def test_groups_schedulers_hooks_and_a_scaler_see_the_same_steps():
    seen = []

    def make(parameters):
        *most, last = (each for each in parameters if each.requires_grad)
        optimizer = torch.optim.AdamW([{"params": most}, {"params": [last], "lr": 0.5, "weight_decay": 0}], lr=0.01)
        optimizer.register_step_post_hook(lambda *_: seen.append(len(seen)))
        return optimizer

    def halve(step, model, optimizer):
        for group in optimizer.param_groups:
            group["lr"] *= 0.5
            group["eps"] = 1e-8 if step < 3 else 1e-6

    assert_same(make, hits=12, after=halve)
    assert seen == [*range(12)]

    def scaled():
        torch.manual_seed(0)
        model, scaler = torch.nn.Linear(3, 1), torch.amp.GradScaler("cpu", init_scale=8.0)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
        for factor in (1.0, float("inf"), 1.0):
            optimizer.zero_grad()
            scaler.scale(model(torch.ones(2, 3)).sum() * factor).backward()
            scaler.step(optimizer)
            scaler.update()
            scheduler.step()
        return model.state_dict(), optimizer.state_dict()

    plain = scaled()
    with under("one-pass-optimizer") as process:
        assert same_bits(scaled(), plain)
        assert process.site.hits == {HITS["Adam"]: 2}


def test_autograd_notices_that_weights_changed():
    with under("one-pass-optimizer") as process:
        weight = torch.nn.Parameter(torch.ones(3))
        optimizer = torch.optim.SGD([weight], lr=0.1, momentum=0.9)
        weight.grad = torch.ones(3)
        optimizer.step()  # makes the momentum
        loss = (weight * weight).sum()
        optimizer.step()
        assert process.site.hits
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


def test_a_checkpoint_a_pickle_and_a_copy_go_on_as_they_would():
    def reload(step, model, optimizer):
        if step == 1:
            optimizer.load_state_dict(pickle.loads(pickle.dumps(optimizer.state_dict())))
        if step == 2:
            copy.deepcopy(optimizer).step()
        if step == 3:
            for state in optimizer.state.values():
                state["exp_avg"].data = state["exp_avg"].data * 2
        if step == 4:
            model.load_state_dict({name: value * 1.5 for name, value in model.state_dict().items()})

    assert_same(lambda ps: torch.optim.Adam(ps, lr=0.01), after=reload)


def test_nothing_holds_a_model_that_the_script_let_go_of(monkeypatch):
    acted = []
    step = one_pass.OnePass(LOOPS._single_tensor_adam, kinds.AdamStep(), lambda: acted.append(1))
    monkeypatch.setattr(LOOPS, "_single_tensor_adam", step)
    model, optimizer, _ = train(torch.optim.Adam)
    assert len(acted) == 6
    gone = [weakref.ref(each) for each in (model.first.weight, optimizer.state[model.first.weight]["exp_avg"])]
    del model, optimizer
    gc.collect()
    assert [ref() for ref in gone] == [None, None]


LEFT = {
    "fused": lambda ps: torch.optim.Adam(ps, fused=True),
    "foreach": lambda ps: torch.optim.Adam(ps, foreach=True),
    "amsgrad": lambda ps: torch.optim.Adam(ps, amsgrad=True),
    "tensor lr": lambda ps: torch.optim.Adam(ps, lr=torch.tensor(0.001)),
    "rmsprop": torch.optim.RMSprop,
}


@pytest.mark.parametrize("name", LEFT)
@pytest.mark.slow
def test_what_is_another_step_is_torchs(name):
    assert_same(LEFT[name], hits=0)


def test_other_types_and_orders_of_memory_are_torchs():
    class Double(Net):
        def __init__(self):
            super().__init__()
            self.double()

    assert_same(torch.optim.Adam, hits=0, net=Double)

    def learn():
        torch.manual_seed(0)
        model = Images().to(memory_format=torch.channels_last)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.randn(4, 3, 8, 8)).square().mean().backward()
            optimizer.step()
        return model.state_dict()

    plain = learn()
    with under("one-pass-optimizer") as process:
        assert same_bits(learn(), plain)
        assert process.site.hits == {}


def overlapping():
    memory = torch.arange(12.0)
    weights = [torch.nn.Parameter(memory[:8]), torch.nn.Parameter(memory[4:])]
    return weights, [torch.ones(8), torch.ones(8)]


def gradient_is_weight():
    weight = torch.nn.Parameter(torch.ones(8))
    return [weight], [weight.detach()]


def twice():
    weight = torch.nn.Parameter(torch.arange(8.0))
    return [weight], [torch.ones(1).expand(8)]


@pytest.mark.parametrize("make", [overlapping, gradient_is_weight, twice])
@pytest.mark.parametrize("kind", [torch.optim.Adam, functools.partial(torch.optim.SGD, momentum=0.9)])
@pytest.mark.slow
def test_memory_that_is_shared_is_torchs(make, kind):
    def run():
        weights, gradients = make()
        optimizer = kind(weights, lr=0.1)
        for _ in range(3):
            for weight, gradient in zip(weights, gradients, strict=True):
                weight.grad = gradient
            optimizer.step()
        return weights

    plain = run()
    with under("one-pass-optimizer") as process:
        assert same_bits(run(), plain)
        assert process.site.hits == {}


def test_flushed_denormals_are_torchs():
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot flush denormals")
    try:
        assert_same(torch.optim.Adam, hits=0)
    finally:
        torch.set_flush_denormal(False)


def test_a_mode_and_a_compiled_step_see_torchs_operations():
    class Seen(torch.utils._python_dispatch.TorchDispatchMode):
        def __init__(self):
            super().__init__()
            self.names = []

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.names.append(func.__name__)
            return func(*args, **(kwargs or {}))

    with under("one-pass-optimizer") as process:
        weight = torch.nn.Parameter(torch.ones(3))
        weight.grad = torch.ones(3)
        optimizer = torch.optim.Adam([weight])
        with Seen() as seen:
            optimizer.step()
        assert any(name.startswith("addcdiv_") for name in seen.names)
        torch.compile(optimizer.step, backend="eager")()
        assert process.site.hits == {}
        optimizer.step()
        assert process.site.hits == {HITS["Adam"]: 1}


# -- proof ----------------------------------------------------------------------------------------------------------


def test_a_torch_that_computes_otherwise_keeps_its_step(monkeypatch):
    original = LOOPS._single_tensor_adam

    def other(params, grads, exp_avgs, exp_avg_sqs, *more, **settings):
        original(params, grads, exp_avgs, exp_avg_sqs, *more, **settings)
        for each in params:
            each.mul_(1.0000001)

    monkeypatch.setattr(LOOPS, "_single_tensor_adam", other)
    assert_same(torch.optim.Adam, hits=0)


def test_a_step_that_comes_out_otherwise_later_is_torchs_from_then_on(monkeypatch):
    original, after = LOOPS._single_tensor_adam, []

    def other(params, *more, **settings):
        original(params, *more, **settings)
        for each in params if after else ():
            each.mul_(1.0000001)

    monkeypatch.setattr(LOOPS, "_single_tensor_adam", other)
    monkeypatch.setattr(one_pass, "_CHECKED_EACH", 4)

    def begin(step, *_):
        after.extend([True] * (step == 2))

    with under("one-pass-optimizer") as process:
        train(torch.optim.Adam, steps=12, after=begin)
        assert process.site.hits == {HITS["Adam"]: 4}


def test_what_a_proof_draws_is_not_drawn_from_the_scripts_stream():
    with under("one-pass-optimizer"):
        train(torch.optim.Adam, steps=0)
        state = torch.get_rng_state()
        weight = torch.nn.Parameter(torch.ones(3))
        weight.grad = torch.ones(3)
        torch.optim.Adam([weight]).step()
        assert torch.equal(torch.get_rng_state(), state)


LINES = """
import torch
import flatout

def train():
    torch.manual_seed(0)
    model = torch.nn.Linear(40, 30)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for _ in range(5):
        optimizer.zero_grad()
        model(torch.randn(8, 40)).square().mean().backward()
        optimizer.step()
    return model.weight.detach()

plain = train()
flatout.one_pass_optimizers()
flatout.one_pass_optimizers()
from flatout.optimizers.one_pass import OnePass
carried_out, made = OnePass.carry_out, []
OnePass.carry_out = lambda *given: made.append(carried_out(*given)) or made[-1]
print(torch.equal(train(), plain), made)
"""


@pytest.mark.slow
def test_a_line_in_a_script_does_the_same():
    done = subprocess.run([sys.executable, "-c", LINES], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "True [True, True, True, True, True]\n"


# -- looking at memory ----------------------------------------------------------------------------------------------


class Sub(torch.Tensor):
    pass


def many_tensors():
    base = torch.arange(24.0)
    yield from (base, base[:0], base.view(4, 6), base.view(4, 6).t(), base[::2], base[3:], torch.tensor(1.0))
    yield from (base.view(1, 24).t(), base.view(24, 1), base[:1].expand(3), base.view(2, 3, 4).permute(2, 0, 1))
    yield from (base.double(), base.long(), base.bfloat16(), base.to(torch.complex64), base.bool())
    yield from (torch.nn.Parameter(base.clone()), torch.empty(3, device="meta"), base.to_sparse())
    yield torch._neg_view(base)
    yield from (torch.empty(0, 3).as_strided((0, 3), (7, 2)), base.view(4, 6)[:, :1], base.clone().as_subclass(Sub))
    yield torch._to_functional_tensor(base.clone())
    with torch.inference_mode():
        yield torch.ones(3)
    emptied = torch.ones(3)
    emptied.untyped_storage().resize_(0)
    yield emptied


MANY = list(many_tensors())


@pytest.mark.skipif(not one_pass._LENT, reason="this torch does not lend tensors to compiled code")
@pytest.mark.parametrize("other", range(len(MANY)))
@pytest.mark.parametrize("one", range(len(MANY)))
@pytest.mark.few(100)
@pytest.mark.slow
def test_compiled_code_sees_what_python_sees(one, other):
    step = kinds.AdamStep()
    made = one_pass.OnePass(LOOPS._single_tensor_adam, step, lambda: None)
    weight, moment, counter = MANY[one], MANY[other], torch.tensor(3.0)
    for lists in (
        ([weight], [weight], [weight], [moment], [], [counter]),
        ([weight], [weight], [weight], [weight], [], [moment]),
        ([weight, moment], [weight, moment], [weight, moment], [moment, moment], [], [counter, counter]),
        ([weight], [weight], [weight], [weight, moment], [], [counter]),
    ):
        wanted = one_pass._told(lists[0], lists[1], step.moments(lists, {}), step.counters(lists))
        assert made._told(lists, {}) == wanted
        assert made._told(lists, {}) == wanted  # what is not plain is not remembered as such


@pytest.mark.parametrize("change", BETWEEN)
@pytest.mark.few(4)
@pytest.mark.slow
def test_a_torch_that_lends_no_tensors_makes_the_same_steps(change, monkeypatch):
    monkeypatch.setattr(one_pass, "_LENT", False)
    test_what_a_script_does_between_two_steps_ends_as_it_would(change)
    assert_same(torch.optim.Adam, hits=6)
