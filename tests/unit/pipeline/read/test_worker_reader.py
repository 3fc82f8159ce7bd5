"""Where the loader has workers and reading is dear, they read the first pass: same samples, order, bits and streams."""

import gc
import time

import numpy as np
import psutil
import pytest
import torch
from PIL import Image
from tests.torchvision_stub import torchvision
from tests.unit.pipeline import unseen
from tests.unit.pipeline.compared import compared, seed, seen
from torch.utils.data import DataLoader, Dataset, RandomSampler

import flatout
from flatout.pipeline.cache.row_store import RowStore
from flatout.pipeline.cache.row_view import WrittenRows
from flatout.pipeline.read.sources import source_of
from flatout.pipeline.read.worker_reader import ReadValues, WorkerReader, can_read
from flatout.pipeline.serve.compiled_loader import LoaderCaches
from flatout.watch.dataset_state import same

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
]
v1 = torchvision.transforms
RANDOM = v1.Compose([v1.RandomResizedCrop(8), v1.RandomHorizontalFlip(), v1.ToTensor()])
PLAIN = v1.Compose([v1.Resize((11, 9)), v1.ToTensor(), v1.Normalize((0.5,), (0.2,))])


class Photographs(Dataset):
    """Images that take longer to read than to hand over; their reader is noted, unless nobody asks."""

    def __init__(self, transform, sides=((9, 9),), fails_at=None, noted=None):
        self.transform, self.sides, self.fails_at, self.noted = transform, sides, fails_at, noted

    def __len__(self):
        return 40

    def __getitem__(self, index):
        if index == self.fails_at:
            raise LookupError(f"no sample {index}")
        time.sleep(0.0002)
        if self.noted is not None:
            unseen.count(self.noted, index)
        pixels = np.random.RandomState(index).randint(0, 256, (*self.sides[index % len(self.sides)], 3), dtype=np.uint8)
        return {"image": self.transform(Image.fromarray(pixels)), "label": index % 4, "name": f"{index}.png"}


def built(*args, **options):
    return lambda: (Photographs(*args), {"num_workers": 2, **options})


@pytest.fixture
def workers_only(monkeypatch):
    def here(self, indices):
        raise AssertionError(f"{indices} are read by the training's own process")

    monkeypatch.setattr(WorkerReader, "_read_here", here)


@pytest.mark.parametrize("transform", [RANDOM, PLAIN], ids=["random", "the same"])
@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.few(2)
def test_a_training_sees_no_difference(workers_only, transform, persistent, workers):
    said = compared(built(transform), num_workers=workers, persistent_workers=persistent)
    assert said.startswith("made in batches; 40 samples kept")


def test_images_of_several_sizes_come_as_they_are(workers_only):
    said = compared(built(RANDOM, ((9, 9), (12, 7), (30, 20))))
    assert said.startswith("made in batches; 40 samples kept")


class OneLarger(Photographs):
    """All but one of one size."""

    def __getitem__(self, index):
        self.sides = ((9, 9),) if index != 17 else ((12, 10),)
        return super().__getitem__(index)


def test_one_sample_of_another_size_changes_nothing():
    compared(lambda: (OneLarger(RANDOM), {"num_workers": 2}))


def test_workers_write_what_is_kept_as_it_is_read_to_its_place(monkeypatch):
    written = []
    fill = RowStore.fill
    monkeypatch.setattr(
        RowStore, "fill", lambda store, indices, parts: written.append(parts) or fill(store, indices, parts)
    )
    list(flatout.compile_loader(DataLoader(Photographs(RANDOM), 8, shuffle=True, num_workers=2)))
    assert len(written) == 5
    assert all(sum(isinstance(part, WrittenRows) for part in parts) == 1 for parts in written)


def test_where_memory_is_not_in_common_with_workers_this_process_writes(monkeypatch):
    monkeypatch.setattr("flatout.pipeline.cache.row_cache.memory_of_workers", lambda num_bytes: None)
    said = compared(built(RANDOM))
    assert said.startswith("made in batches; 40 samples kept")


def test_what_is_kept_in_a_file_is_written_by_this_process(tmp_path):
    plain, _ = seen(built(RANDOM), lambda loader: loader)
    ours, loader = seen(built(RANDOM), lambda loader: flatout.compile_loader(loader, folder=tmp_path, max_bytes=8000))
    assert all(same(one, other) for one, other in zip(plain, ours, strict=True)), loader.explain()
    assert loader.explain().startswith("made in batches; 40 samples kept")


def test_samples_that_come_twice_are_read_once_or_twice_but_right(workers_only):
    def build():
        dataset = Photographs(RANDOM)
        return dataset, {"num_workers": 2, "shuffle": False, "sampler": RandomSampler(dataset, replacement=True)}

    assert compared(build).startswith("made in batches")


def children():
    return set(psutil.Process().children())


def test_workers_read_and_this_process_does_not():
    before, noted = children(), unseen.tally()
    loader = DataLoader(Photographs(RANDOM, ((9, 9),), None, noted), 8, shuffle=True, num_workers=2)
    compiled = flatout.compile_loader(loader)
    walked = iter(compiled)
    unseen.counted(noted, 40)  # what was looked at before
    list(walked)
    here, by_workers = unseen.counted(noted, 40)
    assert by_workers == [1] * 40
    assert sum(map(bool, here)) < 10  # proofs
    assert len(list(compiled)) == 5
    assert children() <= before


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.few(1)
def test_what_the_data_set_raises_comes_out_at_its_batch(workers):
    def raised(wrap):
        seed()
        loader = wrap(DataLoader(Photographs(RANDOM, ((9, 9),), 21), 8, num_workers=workers))
        made = []
        with pytest.raises(LookupError, match="no sample 21"):
            made.extend(batch["image"] for batch in loader)
        del loader
        gc.collect()  # what was raised holds the frames that it came through, and those the workers
        return made

    plain, ours = raised(lambda loader: loader), raised(flatout.compile_loader)
    assert len(plain) == len(ours) == 2
    assert all(torch.equal(one, other) for one, other in zip(plain, ours, strict=True))


def test_a_pass_that_is_left_leaves_no_worker():
    before = children()
    compiled = flatout.compile_loader(DataLoader(Photographs(RANDOM), 4, shuffle=True, num_workers=2))
    walked = iter(compiled)
    next(walked)
    assert len(children() - before) == 2
    del walked
    assert children() <= before
    assert len(list(compiled)) == 10


def test_workers_that_are_set_up_or_started_in_another_way_stay_the_scripts():
    dataset = Photographs(RANDOM)
    source = source_of(dataset)
    assert can_read(DataLoader(dataset, num_workers=1), source)
    assert not can_read(DataLoader(dataset), source)
    assert not can_read(DataLoader(dataset, num_workers=1, worker_init_fn=print), source)
    assert not can_read(DataLoader(dataset, num_workers=1, multiprocessing_context="spawn"), source)
    loader = DataLoader(dataset, num_workers=1, worker_init_fn=int, multiprocessing_context="fork")
    assert "draws random numbers" in flatout.compile_loader(loader).explain()


def test_loaders_whose_workers_are_set_up_share_nothing_with_others():
    dataset, kept = Photographs(RANDOM), LoaderCaches()
    plain = DataLoader(dataset, num_workers=1)
    set_up = DataLoader(dataset, num_workers=1, worker_init_fn=int)
    assert kept.of(plain) is kept.of(DataLoader(dataset, num_workers=2))
    assert kept.of(plain) is not kept.of(set_up)
    assert not kept.of(plain).reason
    assert "draws random numbers" in kept.of(set_up).reason


def test_some_of_what_was_read_is_taken_out_in_any_order():
    read = ReadValues(torch.arange(12).view(4, 3), [torch.arange(4), ["a", "b", "c", "d"]])
    some = read.some([2, 0, 2])
    assert some.value.tolist() == [[6, 7, 8], [0, 1, 2], [6, 7, 8]]
    assert some.others[0].tolist() == [2, 0, 2]
    assert some.others[1] == ["c", "a", "c"]
    assert ReadValues([torch.ones(1), torch.zeros(2)], []).some([1]).value[0].tolist() == [0, 0]
