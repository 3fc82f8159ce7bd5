"""Which calls of modules that learn nothing are known to be given the same rows again."""

import copy
from threading import get_ident
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from flatout.probe.forward.frozen_calls import FrozenWatch

ROWS = torch.randn(64, 6, generator=torch.Generator().manual_seed(0))


def encoder():
    return nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5), nn.Linear(8, 8)).eval().requires_grad_(False)


class Whole(nn.Module):
    """A model that holds its encoder."""

    def __init__(self, inner):
        super().__init__()
        self.inner, self.head = inner, nn.Linear(8, 2)

    def forward(self, x):
        return self.head(self.inner(x).detach())


class Loop:
    """A training by hand."""

    def __init__(self, frozen, roots=(), possible=False):
        self.frozen, self.head = frozen, nn.Linear(8, 2)
        self.optimizer = torch.optim.SGD(
            [*self.head.parameters(), *(p for r in roots for p in r.head.parameters())], lr=0.1
        )
        log = SimpleNamespace(fetching=False, thread=get_ident(), tracing=SimpleNamespace(possible=possible))
        self.watch = FrozenWatch(
            SimpleNamespace(
                fail=self.fail, event_log=log, in_step=lambda: True, modules=lambda: roots or [self.head],
                optimizers=lambda: [self.optimizer],
            )
        )  # fmt: skip

    def fail(self, error):
        raise error

    def encode(self, x):
        with torch.no_grad():
            return self.watch.around(self.frozen, self.frozen)(x)

    def steps(self, body, number=16):
        for step in range(number):
            body(step)
            self.watch.step()
        self.watch.stop()
        return self.watch.facts()


def epochs(step):
    return ROWS[step % 4 * 16 :][:16]


def test_the_rows_of_a_second_epoch_come_back():
    loop = Loop(encoder())
    (found,) = loop.steps(lambda step: loop.encode(epochs(step)))
    assert (found.module, found.calls, found.steps) == ("Sequential", 13, 13)
    assert (found.rows, found.repeated) == (128, 128)
    assert (found.row_bytes, found.output_bytes) == (24, 32)
    assert (found.place.file, found.place.function) == (__file__, "Loop.encode")


def test_rows_that_are_new_each_time_do_not():
    loop = Loop(encoder())
    (found,) = loop.steps(lambda step: loop.encode(torch.randn(16, 6)))
    assert found.repeated == 0


def test_a_frozen_part_of_a_model_is_found_inside_it():
    whole = Whole(encoder())
    loop = Loop(whole.inner, roots=[whole])
    (found,) = loop.steps(lambda step: whole(epochs(step)))
    assert (found.place.function, found.repeated) == ("Whole.forward", 128)


def test_the_modules_class_is_as_it_was():
    whole = Whole(encoder())
    before = dict(vars(nn.Sequential))
    Loop(whole.inner, roots=[whole]).steps(lambda step: whole(epochs(step)))
    assert dict(vars(nn.Sequential)) == before


@pytest.mark.parametrize("change", ["learned", "random", "moved", "copied"])
def test_what_may_give_another_result_is_none(change):
    frozen = encoder()
    loop = Loop(frozen)
    if change == "learned":
        loop.optimizer.add_param_group({"params": list(frozen.parameters())})
    elif change == "random":
        frozen.train()
    elif change == "copied":
        trained = copy.deepcopy(frozen).requires_grad_(True)
        loop.watch._deep.modules = lambda: [trained]

    def body(step):
        loop.encode(epochs(step))
        if change == "moved":
            frozen[0].weight.data.mul_(0.99)

    assert loop.steps(body) == ()
