"""Random numbers made many at a time against those that torch draws one at a time."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.unit.pipeline.compile.kernels.samples import T, v2

from flatout.pipeline.compile import batched_draws as module
from flatout.pipeline.compile.batched_draws import Draws, are_as_torchs
from flatout.pipeline.compile.registry import kernel_for
from flatout.pipeline.compile.rng import aspect, below, happens, order, share, torchs, uniform
from flatout.pipeline.compile.sample_form import SampleForm
from flatout.pipeline.compile.transform_steps import Steps

LIMITS = st.tuples(st.floats(-9, 9, width=32), st.floats(0, 9, width=32)).map(lambda two: (two[0], two[0] + two[1]))
DRAW = st.one_of(
    st.just((share,)),
    st.tuples(st.just(happens), st.floats(0, 1)),
    st.tuples(st.just(uniform), LIMITS),
    st.tuples(st.just(aspect), LIMITS),
    st.tuples(st.just(below), st.integers(1, 2**40)),
    st.tuples(st.just(order), st.integers(1, 9)),
    st.just((lambda generator: torch.randn(3, generator=torchs(generator)).tolist(),)),
)


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(DRAW, max_size=60), st.integers(0, 2**32), st.integers(0, 40))
def test_any_sequence_of_draws_gives_torchs_numbers_and_leaves_its_generator_there(sequence, seed, number):
    one, many = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(seed)
    drawn = Draws(many, number)
    for draw, *how in sequence:
        assert draw(*how, one) == draw(*how, drawn)
    drawn.finished()
    assert torch.equal(one.get_state(), many.get_state())


def test_this_torch_draws_as_is_known():
    assert are_as_torchs()


def test_another_default_type_is_left_to_torch():
    torch.set_default_dtype(torch.float64)
    try:
        assert not are_as_torchs()
    finally:
        torch.set_default_dtype(torch.float32)


def test_a_torch_that_draws_otherwise_is_noticed(monkeypatch):
    monkeypatch.setattr(Draws, "below", lambda self, limit: int(self.share() * limit))
    module._agree.cache_clear()
    assert not are_as_torchs()
    monkeypatch.undo()
    module._agree.cache_clear()
    assert are_as_torchs()


def test_numbers_run_out_and_are_made_again():
    one, many = torch.Generator().manual_seed(5), torch.Generator().manual_seed(5)
    drawn = Draws(many, 1)
    assert [share(drawn) for _ in range(100)] == [share(one) for _ in range(100)]
    assert drawn.num_taken == 100


CHAINS = {
    "crop, flip, colors": [T.RandomResizedCrop(9), T.RandomHorizontalFlip(), T.ColorJitter(0.3, 0.3, 0.3, 0.1)],
    "ways": [v2.RandomChoice([T.RandomVerticalFlip(), T.RandomCrop(20)]), v2.RandomApply([T.RandomRotation(9)])],
    "noise": [T.ToTensor(), T.RandomErasing(value="random"), T.RandomHorizontalFlip()],
}


@pytest.mark.parametrize("chain", CHAINS.values(), ids=CHAINS)
@pytest.mark.parametrize("own", [True, False])
def test_what_operations_draw_for_a_batch_is_what_they_draw_by_torch_itself(chain, own, monkeypatch):
    made = []
    for known in (True, False):
        monkeypatch.setattr("flatout.pipeline.compile.transform_steps.are_as_torchs", lambda known=known: known)
        form, kernels = SampleForm("image", "RGB"), []
        for operation in chain:
            kernels.append(kernel_for(operation, form))
            form = kernels[-1].after
        stream = torch.Generator().manual_seed(3) if own else None
        torch.manual_seed(3)
        steps = Steps(kernels)
        batch = torch.zeros(6, 20, 20, 3, dtype=torch.uint8)
        some = batch.permute(0, 3, 1, 2).float() if form.kind == "tensor" else batch
        drawn = [steps._draw(some, stream) for _ in range(3)]
        made.append((drawn, (stream or torch.default_generator).get_state()))
    assert repr(made[0]) == repr(made[1])
    assert torch.equal(made[0][1], made[1][1])


def test_an_operation_that_fails_leaves_the_generator_where_it_had_come_to():
    kernels = [
        kernel_for(operation, SampleForm("image", "RGB")) for operation in (T.RandomHorizontalFlip(), T.RandomCrop(30))
    ]
    one, many = torch.Generator().manual_seed(3), torch.Generator().manual_seed(3)
    with pytest.raises(ValueError, match="larger"):
        Steps(kernels)._draw(torch.zeros(8, 20, 20, 3, dtype=torch.uint8), many)
    share(one)
    assert torch.equal(one.get_state(), many.get_state())
