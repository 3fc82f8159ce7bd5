"""Small batches gathered at once are the plain loader's, each in memory of its own."""

import pytest
import torch
from tests.unit.pipeline.programs import Images, Program
from tests.unit.pipeline.test_equality import agree
from torch.utils.data import DataLoader, Dataset, RandomSampler, TensorDataset

from flatout.pipeline import bundles, compile_loader
from flatout.pipeline.kernels import native

pytestmark = pytest.mark.skipif(not native.available(), reason="no compiled part")


@pytest.fixture
def gathers(monkeypatch):
    """Return how many batches each gather was of, as they come."""
    found, usual = [], bundles._gathered

    def note(rows, indices, outs):
        found.append(len(outs))
        return usual(rows, indices, outs)

    monkeypatch.setattr(bundles, "_gathered", note)
    return found


class Pictures(Dataset):
    """Counts nothing, draws nothing; a list of labels that a test may change."""

    def __init__(self, length=100):
        self.labels = torch.arange(length)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return torch.full((3, 4), float(index)), self.labels[index]


@pytest.mark.parametrize("drop_last", [True, False])
@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("workers", [0, 1])
def test_batches_and_random_streams_are_those_of_the_plain_loader(gathers, shuffle, drop_last, workers):
    options = {"batch_size": 3, "shuffle": shuffle, "drop_last": drop_last, "num_workers": workers}
    agree(Program(Images(99), options), passes=3)
    assert max(gathers) > 4


def test_more_and_more_are_gathered_at_once(gathers):
    loader = compile_loader(DataLoader(Pictures(400), batch_size=2, shuffle=True))
    for _ in range(2):
        assert len(list(loader)) == 200
    per_part = gathers[::2]
    assert per_part == gathers[1::2] == [1, 2, 4, 8, 16, 32, 32, 32, 32, 32, 9]


def test_a_batch_has_memory_of_its_own():
    loader = compile_loader(DataLoader(Pictures(), batch_size=4, shuffle=True))
    list(loader)
    torch.manual_seed(3)
    batches = list(loader)
    torch.manual_seed(3)
    for (values, labels), (others, _) in zip(batches, loader, strict=True):
        assert values.untyped_storage().nbytes() == 4 * 12 * 4
        assert labels.untyped_storage().nbytes() == 4 * 8
        assert (values.storage_offset(), values._is_view(), values._version) == (0, False, 0)
        values.mul_(0).resize_(9, 12).fill_(-1.0)  # beyond its end
        assert torch.equal(others[:, 0, 0], labels.float())


def test_much_is_not_gathered_at_once(gathers, monkeypatch):
    monkeypatch.setattr(bundles, "_MOST_BYTES", 1000)
    loader = compile_loader(DataLoader(Pictures(), batch_size=4))  # 224 bytes a batch
    for _ in range(2):
        list(loader)
    assert max(gathers) == 4
    gathers.clear()
    monkeypatch.setattr(bundles, "_MOST_BYTES", 400)
    list(loader)
    assert gathers == []


def test_what_breaks_off_and_begins_again_is_the_same():
    loader = compile_loader(DataLoader(Pictures(), batch_size=4, shuffle=True))
    list(loader)
    torch.manual_seed(1)
    whole = [labels.tolist() for _, labels in loader]
    torch.manual_seed(1)
    first, second = iter(loader), None
    begun = [next(first)[1].tolist() for _ in range(7)]
    torch.manual_seed(1)
    second = iter(loader)  # two at a time
    assert [next(second)[1].tolist() for _ in range(9)] == whole[:9]
    assert begun + [labels.tolist() for _, labels in first] == whole


def test_samples_that_are_not_there_are_the_scripts_own_affair():
    class Known(Pictures):
        def __getitem__(self, index):
            if index >= len(self.labels):
                raise IndexError(f"no sample {index}")
            return super().__getitem__(index)

    dataset = Known(40)
    loader = compile_loader(DataLoader(dataset, batch_size=4))
    for _ in range(2):
        assert len(list(loader)) == 10
    beyond = DataLoader(dataset, batch_size=4, sampler=RandomSampler(range(60)))
    seen = []
    for kind in (lambda plain: plain, lambda plain: loader._kept and _as(loader, plain)):
        torch.manual_seed(5)
        came = []
        with pytest.raises(IndexError, match="no sample"):
            came.extend(labels.tolist() for _, labels in kind(beyond))
        seen.append(came)
    assert seen[0] == seen[1]


def _as(compiled, plain):
    """Return `plain` compiled with what is kept for `compiled`."""
    made = compile_loader(plain)
    made._kept = compiled._kept
    return made


def test_a_sample_that_changes_ends_it_at_once(gathers):
    dataset = Pictures(400)
    loader = compile_loader(DataLoader(dataset, batch_size=2))
    for _ in range(2):
        list(loader)
    walked = iter(loader)
    for _ in range(20):
        next(walked)
    assert gathers[-1] == 16
    dataset.labels = dataset.labels + 1000
    cache = loader._kept.of(loader._plain)
    cache._pace.next_s = 0.0  # a proof is due
    rest = [labels for _, labels in walked]
    assert all(int(labels[0]) >= 1000 for labels in rest)
    assert cache.reason


@pytest.mark.parametrize(
    "options",
    [
        {"sampler": RandomSampler(range(100), replacement=True, num_samples=50)},
        {"shuffle": True, "generator": torch.Generator()},
        {"batch_sampler": [[1, 2], [5, 6]]},
    ],
)
def test_indices_that_are_not_torchs_are_drawn_one_batch_at_a_time(gathers, options):
    loader = compile_loader(
        DataLoader(Pictures(), **({"batch_size": 2} if "batch_sampler" not in options else {}), **options)
    )
    for _ in range(2):
        list(loader)
    assert gathers == []


def test_rows_of_every_type_are_gathered():
    parts = [
        torch.arange(60).reshape(30, 2).to(kind)
        for kind in (torch.uint8, torch.bool, torch.float16, torch.bfloat16, torch.float64, torch.complex64)
    ]
    agree(Program(TensorDataset(*parts), {"batch_size": 4, "shuffle": True}))


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_compiled_code_copies_rows_and_refuses_those_that_are_not_there(threads, monkeypatch):
    monkeypatch.setattr(bundles, "cores_of_this_rank", lambda: threads)
    monkeypatch.setattr(bundles, "_EACH_BYTES", 1)
    rows = torch.randn(50, 7)
    sizes = (3, 0, 5, 1, 9)
    indices = torch.randint(0, 50, (sum(sizes),))
    outs = [torch.empty(size, 7) for size in sizes]
    assert bundles._gathered(rows, indices, outs)
    assert torch.equal(torch.cat(outs), rows[indices])
    for wrong in (-1, 50):
        indices[4] = wrong
        assert not bundles._gathered(rows, indices, outs)


def test_another_pass_that_finds_a_change_is_heard_at_once():
    dataset = Pictures(400)
    loader = compile_loader(DataLoader(dataset, batch_size=2))
    for _ in range(2):
        list(loader)
    first = iter(loader)
    for _ in range(20):
        next(first)
    dataset.labels = dataset.labels + 1000
    assert int(next(iter(loader))[1][0]) == 1000
    assert all(int(labels[0]) >= 1000 for _, labels in first)
