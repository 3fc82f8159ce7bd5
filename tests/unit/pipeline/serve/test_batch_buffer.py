"""Small batches come several at once: nobody can tell from their bits, their memory, their order or what they draw."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, TensorDataset

from flatout import compile_loader
from flatout.pipeline.cache import gather as gathering
from flatout.pipeline.compile.row_operations import copied_from
from flatout.pipeline.serve import batch_buffer
from flatout.torch_loader.sampler_order import DrawnAhead, InOneDraw

SIZE, NUMBER = 6, 100


class Rows(Dataset):
    """Samples of two parts; a look at them cannot tell that they lie in memory."""

    def __init__(self, number=NUMBER):
        self.number, self.offset = number, 0.0

    def __len__(self):
        return self.number

    def __getitem__(self, index):
        return torch.full((3, 4), index + self.offset), index


@pytest.fixture
def made(monkeypatch):
    """Return the numbers of batches that were made at once, group after group."""
    numbers = []
    make = batch_buffer.BatchBuffer._make

    def counted(self, gather):
        make(self, gather)
        numbers.append(len(self._made))

    monkeypatch.setattr(batch_buffer.BatchBuffer, "_make", counted)
    return numbers


def passes(loader, number=3):
    """Return the batches of passes, and numbers drawn between them."""
    torch.manual_seed(5)
    return [([*loader], torch.rand(2)) for _ in range(number)]


def same_passes(one, other):
    for (batches, drawn), (others, drawn_there) in zip(one, other, strict=True):
        assert torch.equal(drawn, drawn_there)
        for batch, there in zip(batches, others, strict=True):
            assert type(batch) is type(there)
            for part, part_there in zip(batch, there, strict=True):
                assert torch.equal(part, part_there)
                assert (part.dtype, part.stride()) == (part_there.dtype, part_there.stride())


@pytest.mark.parametrize("settings", [{}, {"shuffle": True}, {"drop_last": True, "shuffle": True}], ids=str)
@pytest.mark.parametrize("workers", [{}, {"num_workers": 2}, {"num_workers": 1, "persistent_workers": True}], ids=str)
@pytest.mark.few(5)
@pytest.mark.slow
def test_passes_give_what_they_gave_and_draw_what_they_drew(settings, workers, made):
    def loader():
        return DataLoader(Rows(), batch_size=SIZE, **settings, **workers)

    ours = passes(compile_loader(loader()))
    assert max(made) > 4
    same_passes(ours, passes(loader()))


def test_each_batch_lies_in_memory_of_its_own(made):
    compiled = compile_loader(DataLoader(Rows(), batch_size=SIZE))
    passes(compiled)
    batches = list(compiled)
    assert max(made) > 4
    parts = [part for batch in batches for part in batch]
    assert len({part.untyped_storage().data_ptr() for part in parts}) == len(parts)
    assert all(part.untyped_storage().nbytes() == part.nbytes for part in parts)
    for part in parts:
        part.zero_()
    same_passes([(list(compiled), torch.ones(1))], [(list(DataLoader(Rows(), batch_size=SIZE)), torch.ones(1))])


def test_what_is_given_out_is_counted_and_not_what_is_made(made):
    compiled = compile_loader(DataLoader(Rows(), batch_size=SIZE))
    passes(compiled, 2)
    cache = compiled._kept.of(compiled._plain)
    before = cache.served
    walked = iter(compiled)
    for _ in range(5):
        next(walked)
    assert made[-1] > 5
    assert cache.served == before + 5


def test_batches_that_were_made_before_what_is_kept_was_dropped_are_not_given_out(made):
    compiled = compile_loader(DataLoader(Rows(), batch_size=SIZE))
    passes(compiled, 2)
    walked = iter(compiled)
    seen = [next(walked) for _ in range(3)]
    compiled.dataset.offset = 0.5  # another pass finds it
    assert float(next(iter(compiled))[0][0, 0, 0]) == 0.5
    seen += list(walked)
    assert [float(x[0, 0, 0]) for x, _ in seen] == [
        SIZE * place + 0.5 * (place >= 3) for place in range(-(-NUMBER // SIZE))
    ]
    assert max(made) > 4


def test_batches_that_take_much_memory_come_one_by_one(made):
    class Large(Rows):
        def __getitem__(self, index):
            return torch.full((2**17,), float(index)), index

    def loader():
        return DataLoader(Large(20), batch_size=4)

    same_passes(passes(compile_loader(loader())), passes(loader()))
    assert not any(made)


KINDS = [torch.float32, torch.int64, torch.uint8, torch.bool, torch.bfloat16, torch.complex64]


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("dtype", KINDS, ids=str)
@pytest.mark.parametrize("shape", [(), (3,), (5, 7, 2), (300, 41)], ids=str)
@pytest.mark.slow
def test_rows_are_copied_as_they_are_selected(dtype, shape):
    rows = torch.from_numpy(np.random.RandomState(3).randint(0, 2, (50, *shape))).to(dtype)
    places = torch.randint(0, 50, (64,))
    part = copied_from(rows)
    assert part is not None
    for size in (1, 5, 64, 100):
        batches = part.several(places, size)
        assert [len(batch) for batch in batches] == [len(some) for some in places.split(size)]
        assert torch.equal(torch.cat(batches), rows[places])
        assert all(batch.is_contiguous() and batch.dtype is dtype for batch in batches)


@pytest.mark.parametrize("place", [-1, 50, 2**40])
def test_a_place_beyond_all_rows_is_an_error(place):
    part = copied_from(torch.zeros(50, 4))
    with pytest.raises(IndexError, match=f"no row {place} of 50"):
        part.several(torch.tensor([3, place, 4]), 2)


def test_rows_that_do_not_lie_one_after_the_other_are_left_to_torch():
    assert copied_from(torch.zeros(50, 4, 3).permute(0, 2, 1)) is None
    assert copied_from(None) is None
    assert copied_from(torch.zeros(50, 0)) is None


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("ahead", [0, 3])
def test_indices_come_in_one_order_however_many_are_taken_at_once(ahead, drop_last):
    draws = []

    def draw():
        draws.append(torch.randperm(20))
        return draws[-1]

    order = InOneDraw(draw, BatchSampler(range(20), 6, drop_last))
    assert not draws  # at the first batch
    source = DrawnAhead(order, ahead) if ahead else order
    taken = [next(source), source.several(1), next(source), source.several(5)]
    assert len(draws) == 1
    assert torch.equal(torch.cat(taken), draws[0][: 18 if drop_last else 20])
    assert len(source.several(1)) == 0
    assert next(source, None) is None


def test_nothing_is_in_an_empty_order():
    order = InOneDraw(lambda: torch.arange(0), BatchSampler(range(0), 4, False))
    assert next(order, None) is None
    assert len(order.several(3)) == 0


@pytest.mark.parametrize(
    "write", [lambda x: x.data.add_(0.5), lambda x: x.numpy().__iadd__(0.5), lambda x: x.add_(0.5)]
)
def test_what_is_written_to_arrays_is_in_the_next_batch(made, write):
    x = torch.arange(300.0).view(100, 3)
    compiled = compile_loader(DataLoader(TensorDataset(x, torch.arange(100)), batch_size=SIZE))
    walked = iter(compiled)
    next(walked)
    write(x)
    assert torch.equal(torch.cat([batch for batch, _ in walked]), x[SIZE:])
    assert not any(made)


def test_batches_made_in_inference_mode_are_not_given_out_in_training(made):
    compiled = compile_loader(DataLoader(Rows(), batch_size=SIZE))
    passes(compiled, 2)
    walked = iter(compiled)
    with torch.inference_mode():
        next(walked)
    assert made[-1] > 4
    assert not next(walked)[0].is_inference()


def test_an_interrupt_loses_no_batch(made, monkeypatch):
    compiled = compile_loader(DataLoader(Rows(), batch_size=SIZE))
    passes(compiled, 2)
    walked = iter(compiled)
    with monkeypatch.context() as patch:
        patch.setattr(gathering.Gather, "several", interrupted)
        with pytest.raises(KeyboardInterrupt):
            next(walked)
    assert torch.cat([index for _, index in walked]).tolist() == list(range(NUMBER))


def interrupted(*_):
    raise KeyboardInterrupt


def test_rows_that_were_moved_are_not_read_where_they_were():
    rows = torch.zeros(50, 4)
    part = copied_from(rows)
    rows.set_(torch.ones(50, 4))
    with pytest.raises(ValueError, match="lie elsewhere"):
        part.several(torch.arange(20), 5)


@pytest.mark.usefixtures("two_threads")
@pytest.mark.slow
def test_a_forked_child_does_not_wait_for_threads_that_it_has_not():
    code = """if True:
        import os, torch
        from flatout.pipeline.compile.row_operations import copied_from
        torch.set_num_threads(2)
        part = copied_from(torch.ones(4000, 100))
        part.several(torch.arange(2000), 32)
        if os.fork() == 0:
            os._exit(0 if len(part.several(torch.arange(2000), 32)) == 63 else 1)
        print(os.wait()[1])
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "0", done.stderr
