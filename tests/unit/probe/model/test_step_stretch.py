"""Which operations of a step pass the mode: all but those of backward passes, optimizers and loaders."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from flatout.probe.core.event_log import EventLog
from flatout.probe.model.step_stretch import StepStretch


class Seen(TorchDispatchMode):
    """What passes, while the stretch is open."""

    def __init__(self, stretch):
        super().__init__()
        self.names = []
        self.stretch = stretch

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if self.stretch.is_open:
            self.names.append((function._overloadpacket.__name__, self.stretch.in_module))
        return function(*args, **(kwargs or {}))


@pytest.fixture
def watch():
    """Return a stretch with its mode, a model and its optimizer, none of which is begun."""
    log = EventLog(lambda step: None, lambda outside: None)
    log.tracing.possible = False
    stretch = StepStretch(log)
    model = nn.Linear(3, 2)
    stretch.install()
    seen = Seen(stretch)
    yield SimpleNamespace(
        log=log, stretch=stretch, seen=seen, model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1)
    )
    stretch.stop()
    assert torch._C._len_torch_dispatch_stack() == 0


def one_step(watch, loss=lambda y: y.exp().sum()):
    x = torch.ones(4, 3).cos()
    value = loss(watch.stretch.around(watch.model, watch.model)(x))
    watch.stretch.leave()  # as before a backward pass
    value.backward()
    watch.optimizer.step()
    return value


def test_the_model_and_the_loss_pass_and_not_the_optimizer(watch):
    watch.stretch.begin(watch.seen)
    one_step(watch)
    names = dict(watch.seen.names)
    assert names["addmm"] is True
    assert names["exp"] is False
    assert "cos" not in names, "before the first stretch began"
    assert not {"add_", "_foreach_add_", "mul"} & set(names)


def test_what_comes_before_the_model_passes_from_the_second_step_on(watch):
    watch.stretch.begin(watch.seen)
    one_step(watch)
    one_step(watch)
    watch.stretch.begin(None)
    one_step(watch)
    assert [name for name, _ in watch.seen.names].count("cos") == 1


def test_where_the_model_is_known_it_begins_at_once(watch):
    one_step(watch)
    watch.stretch.begin(watch.seen)
    one_step(watch)
    assert "cos" in dict(watch.seen.names)


def test_results_are_what_they_are_without_it(watch):
    before = torch.get_rng_state()
    plain = one_step(watch)
    with torch.no_grad():
        watch.model.weight.grad = watch.model.bias.grad = None
    watch.stretch.begin(watch.seen)
    again = one_step(watch)
    assert torch.equal(before, torch.get_rng_state())
    assert plain.requires_grad is again.requires_grad is True


def test_a_loaders_operations_do_not_count(watch):
    watch.stretch.begin(watch.seen)
    one_step(watch)
    watch.log.fetching = True
    torch.ones(2).tan()
    watch.log.fetching = False
    torch.ones(2).sin()
    names = [name for name, _ in watch.seen.names]
    assert "sin" in names
    assert "tan" not in names


def test_it_is_left_while_a_trained_model_is_evaluated(watch):
    watch.stretch.begin(watch.seen)
    one_step(watch)
    watch.model.eval()
    watch.stretch.called(watch.model)
    torch.ones(2).tan()
    watch.model.train()
    watch.stretch.around(watch.model, watch.model)(torch.ones(1, 3))
    assert "tan" not in [name for name, _ in watch.seen.names]
    assert "addmm" in [name for name, _ in watch.seen.names]


def test_a_mode_that_the_script_enters_meanwhile_stays_in_force(watch):
    watch.stretch.begin(watch.seen)
    watch.stretch.around(watch.model, watch.model)
    with Seen(watch.stretch) as other:
        watch.stretch.leave()
        torch.ones(2).tan()
    assert "tan" in [name for name, _ in other.names]
    assert "tan" not in [name for name, _ in watch.seen.names]


def test_where_the_script_has_a_mode_of_its_own_there_is_no_stretch(watch):
    watch.stretch.begin(watch.seen)
    with Seen(watch.stretch):
        watch.stretch.around(watch.model, watch.model)(torch.ones(1, 3))
    assert watch.seen.names == []


@pytest.mark.parametrize("setting", ["possible", "device"])
def test_nothing_passes_of_what_is_compiled_or_on_a_device(watch, setting):
    model = watch.model
    if setting == "possible":
        watch.log.tracing.possible = True
    else:
        model = nn.Linear(3, 2, device="meta")
    watch.stretch.begin(watch.seen)
    assert watch.stretch.around(model, model) is model
    assert torch._C._len_torch_dispatch_stack() == 0


@pytest.mark.slow
def test_a_compiled_step_after_the_recording_goes_through_the_hooks_that_stayed(watch):
    weight = nn.Parameter(torch.ones(3))
    weight.grad = torch.ones(3)
    optimizer = torch.optim.SGD([weight], lr=0.5)
    torch.compile(optimizer.step, backend="eager")()
    assert weight.tolist() == [0.5, 0.5, 0.5]


def fetch(watch, waits, *, taken_ns=1000):
    """A loader that has given so many batches, each in 1000 ns, makes another one."""
    for listener in watch.log.events.fetch_listeners:
        listener.before_fetch(waits)
    watch.log.fetching = True
    torch.ones(3).sin()
    watch.log.fetching = False
    for listener in watch.log.events.fetch_listeners:
        listener.after_fetch(waits, 1000 * waits, taken_ns)
    torch.ones(3).tan()


def test_the_mode_is_not_in_force_while_a_loader_makes_a_batch(watch):
    watch.stretch.begin(watch.seen)
    one_step(watch)
    was_open, type(watch.stretch).is_open = type(watch.stretch).is_open, True
    try:
        fetch(watch, 10)
    finally:
        type(watch.stretch).is_open = was_open
    names = dict(watch.seen.names)
    assert "sin" not in names and "tan" in names


def test_where_the_input_is_followed_it_ends_for_a_loader_whose_batches_take_far_longer(watch):
    watch.stretch = StepStretch(watch.log, follows_input=True)
    watch.log.events.fetch_listeners.clear()
    watch.stretch.install()
    watch.seen = Seen(SimpleNamespace(is_open=True, in_module=False))
    watch.stretch.begin(watch.seen)
    one_step(watch)
    found = []
    for waits, taken_ns in ((1, 1000), (10, 1000), (11, 10**9), (12, 10**9)):
        watch.seen.names.clear()
        fetch(watch, waits, taken_ns=taken_ns)
        found.append(("sin" in dict(watch.seen.names), watch.stretch.batches.missed))
        assert "tan" in dict(watch.seen.names)
    assert found == [(False, False), (True, False), (True, False), (False, True)]
    watch.stretch.begin(watch.seen)
    assert not watch.stretch.batches.missed
    watch.stretch.stop()
