"""What is seen of DistributedDataParallel: how often it exchanges, and when it need not have."""

import contextlib
import gc

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from flatout.probe.core.probe_failure import raise_it
from flatout.probe.system.gradient_exchange import ExchangeWatch
from flatout.schema.run import Step

STEPS, MICRO = 12, 4


@pytest.fixture(autouse=True)
def one_rank():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    gc.collect()  # a module that holds the group last joins its threads under the interpreter's lock: they may want it
    dist.destroy_process_group()


def train(watch, *, sync=lambda micro: True, zero=lambda micro: False, micro=MICRO, modules=1):
    models = [DistributedDataParallel(torch.nn.Linear(4, 4)) for _ in range(modules)]
    optimizer = torch.optim.SGD([p for model in models for p in model.parameters()], lr=0.1)
    for number in range(1, STEPS + 1):
        for part in range(micro):
            model = models[part % modules]
            if zero(part):
                optimizer.zero_grad()
            with contextlib.nullcontext() if sync(part) else model.no_sync():
                x = torch.randn(part + 1, 4)
                watch.called(model, ((x,), {}))
                loss = model(x).square().mean()
                watch.backward()
                loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        watch.step(Step(start_ns=0, wall_ns=10**7, phases_ns=(0,) * 8), number)
    return watch.facts()


@pytest.fixture
def watch():
    return ExchangeWatch(raise_it)


def test_one_exchange_a_step_is_as_it_should_be(watch):
    found = train(watch, micro=1)
    assert (found.exchanges, found.needless, found.step_s) == (1.0, 0.0, 0.01)
    assert found.place.file == __file__


def test_steps_with_another_setting_do_not_count(watch, monkeypatch):
    slow = 6  # from this step on, until the last but two
    take = watch.step

    def step(one, number):
        aside = slow <= number < STEPS - 2
        take(Step(start_ns=0, wall_ns=10**9 if aside else 10**7, phases_ns=(0,) * 8), number, aside=aside)

    monkeypatch.setattr(watch, "step", step)
    found = train(watch)
    assert (found.steps, found.step_s) == (1 + 3, 0.01)  # the fifth, and the last three
    assert (found.exchanges, found.needless) == (MICRO, MICRO - 1)


def test_exchanges_before_more_is_added_are_needless(watch):
    found = train(watch)
    assert (found.exchanges, found.needless) == (MICRO, MICRO - 1)


def test_without_exchange_but_the_last_nothing_is_needless(watch):
    found = train(watch, sync=lambda micro: micro == MICRO - 1)
    assert (found.exchanges, found.needless) == (1.0, 0.0)


def test_several_backward_passes_of_their_own_are_no_accumulation(watch):
    found = train(watch, zero=lambda micro: True)  # as LBFGS and sharpness-aware minimization do
    assert (found.exchanges, found.needless) == (MICRO, 0.0)


def test_gradients_of_what_no_optimizer_holds_are_no_accumulation():
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)))
    optimizer = torch.optim.SGD(model.module[1].parameters(), lr=0.1)
    watch = ExchangeWatch(raise_it, lambda: [optimizer])
    for number in range(1, STEPS + 1):
        x = torch.randn(2, 4)
        watch.called(model, ((x,), {}))
        loss = model(x).square().mean()
        watch.backward()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()  # the first layer keeps what it has, and every step adds to it
        watch.step(Step(start_ns=0, wall_ns=10**7, phases_ns=(0,) * 8), number)
    assert model.module[0].weight.grad is not None
    assert (watch.facts().exchanges, watch.facts().needless) == (1.0, 0.0)


def test_of_several_modules_nothing_is_said(watch):
    assert train(watch, modules=2) is None


def test_each_exchange_is_clocked_with_the_size_of_its_batch(watch):
    found = train(watch)
    assert len(found.exposed_s) >= STEPS * MICRO // 2
    assert found.exposed_s.keys() == found.elements.keys()
    assert all(seconds >= 0 for seconds in found.exposed_s.values())
    assert set(found.elements.values()) == {4 * rows for rows in range(1, MICRO + 1)}
    assert found.exchange_s > 0


def test_what_the_model_is_first_called_with_is_told_by_its_values_and_shapes(watch):
    def contents(seed, **options):
        torch.manual_seed(seed)
        return train(ExchangeWatch(raise_it), micro=1, **options).contents

    first = contents(0)
    assert len(first) == len(set(first)) == 8
    assert contents(0) == first
    assert not set(contents(1)) & set(first)
