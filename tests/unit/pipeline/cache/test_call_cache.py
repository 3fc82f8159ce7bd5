"""Results of one function of a data set kept, where samples are drawn at random around it.

Modules: flatout.pipeline.cache.call_cache, flatout.pipeline.cache.asked_samples and flatout.pipeline.read.sample_calls.
"""

import functools
import gc
import random
import threading
import weakref
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tests.unit.pipeline import unseen
from tests.unit.pipeline.programs import Program
from tests.unit.pipeline.test_equality import agree
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset

from flatout.pipeline import compile_loader
from flatout.pipeline.read.sample_calls import dearest_call, key_of
from flatout.pipeline.serve.compiled_loader import LoaderCaches
from flatout.watch.dataset_state import same

pytestmark = pytest.mark.slow

SHIFT = [0]


def slow_pixels(number, side=24):
    """Some work that comes out the same each time."""
    pixels = np.random.RandomState(number).randint(0, 256, (side, side, 3), dtype=np.uint8)
    for _ in range(200):
        pixels = np.sort(pixels, axis=0)[::-1] ^ np.uint8(3 + SHIFT[0])
    return pixels.copy()


class Shelf(Dataset):
    """Draws beside and behind what it loads."""

    def __init__(self, number=20):
        self.names = [f"photo {at}" for at in range(number)]
        self.size = 24

    def __len__(self):
        return len(self.names)

    def load(self, name):
        return slow_pixels(int(name.split()[1]), self.size)

    def number(self, at):
        return self.names[at]

    def __getitem__(self, at):
        pixels = self.load(self.number(at))
        if torch.rand(1) < 0.5:
            pixels = pixels[:, ::-1]
        pixels = pixels * np.random.uniform(0.7, 1.3)
        return torch.from_numpy(np.ascontiguousarray(pixels)), random.randint(0, 9)


class OfModule(Shelf):
    """Calls a function of its module, with names."""

    def __getitem__(self, at):
        return slow_pixels(at, side=self.size) * random.random(), at


class Static(Shelf):
    """Calls a static method, and keeps no more of it than a part that it writes to."""

    @staticmethod
    def opened(path):
        return Image.fromarray(slow_pixels(int(Path(path).name)))

    def __getitem__(self, at):
        image = self.opened(Path("photos", str(at)))
        image.putpixel((0, 0), (at, 0, random.randint(0, 255)))
        return torch.from_numpy(np.asarray(image).copy()), at


class Within(Shelf):
    """What is alike is a function within a function that draws."""

    def get(self, at):
        pixels = self.load(f"photo {at}")
        return pixels[:, ::-1].copy() if random.random() < 0.5 else pixels

    def __getitem__(self, at):
        return self.get(at), at


class Pairs(Shelf):
    """Which one is loaded besides is drawn, too."""

    def __getitem__(self, at):
        other = random.randrange(len(self.names))
        return self.load(f"photo {at}"), self.load(self.names[other]), other


class AtOnce(Shelf):
    """Is asked for all samples of a batch together."""

    def __getitems__(self, indices):
        return [self[at] for at in indices]


def encode(dataset, **options):
    return agree(Program(dataset, {"batch_size": 6, "shuffle": True, **options})).explain()


@pytest.mark.parametrize("kind", [Shelf, OfModule, Static, Within, Pairs, AtOnce])
def test_what_the_slow_function_gives_is_kept_and_all_else_is_as_the_script_has_it(kind):
    said = encode(kind())
    assert said.startswith("20 results of "), said
    assert "the rest of each sample is made anew" in said


def test_parts_of_a_data_set_are_looked_into():
    assert encode(Subset(Shelf(), [3, 1, 4, 1, 5, 9])).startswith("5 results of Shelf.load")
    assert encode(ConcatDataset([Shelf(), Shelf(5)])).startswith("left as it is")


def test_each_name_is_loaded_once(monkeypatch):
    loaded, plain = unseen.tally(), slow_pixels
    monkeypatch.setattr(Shelf, "load", lambda self, name: unseen.count(loaded, 0) or plain(int(name.split()[1])))
    loader = compile_loader(DataLoader(Shelf(), batch_size=5))
    list(loader)
    first = unseen.counted(loaded)[0][0]
    for _ in range(3):
        list(loader)
    assert unseen.counted(loaded)[0][0] <= first + 6  # proofs


class Draws(Shelf):
    seldom = None

    def load(self, name):
        return super().load(name) + (random.randint(0, 1) if self.seldom in (None, name) else 0)


class Counts(Shelf):
    def load(self, name):
        self.loads = getattr(self, "loads", 0) + 1
        return super().load(name)


class Holds(Shelf):
    def __init__(self):
        super().__init__()
        self.held = {name: slow_pixels(at) for at, name in enumerate(self.names)}

    def load(self, name):
        slow_pixels(1)
        return self.held[name]

    def __getitem__(self, at):
        pixels = self.load(self.names[at])
        pixels[0, 0] = random.randint(0, 255)
        return torch.from_numpy(pixels.copy()), at


class OfArrays(Shelf):
    def __getitem__(self, at):
        return self.heavy(np.full((24, 24, 3), at, dtype=np.uint8)) * random.random(), at

    def heavy(self, pixels):
        for _ in range(200):
            pixels = np.sort(pixels, axis=0)[::-1] ^ np.uint8(3)
        return pixels.copy()


class Clocked(Shelf):
    calls = iter(range(10**9))

    def load(self, name):
        return super().load(name) + np.uint8(next(self.calls) % 7)


class Cut(Shelf):
    """Loads each in one of a hundred ways: what is kept is hardly ever asked for again."""

    ways = 100

    def load(self, name, cut):
        return np.roll(slow_pixels(int(name.split()[1]), self.size), cut, axis=0)

    def __getitem__(self, at):
        return torch.from_numpy(self.load(self.names[at], random.randint(1, self.ways)).copy()), at


class Turned(Cut):
    ways = 2


class Mixed(Shelf):
    def __getitem__(self, at):
        other = random.randrange(len(self))
        return torch.from_numpy(self.load(self.names[at]) / 2 + self.load(self.names[other]) / 2), at


class Volumes(Shelf):
    """A random part of one of 40 volumes."""

    def __len__(self):
        return 400

    def __getitem__(self, at):
        whole = self.load(f"photo {random.randrange(40)}")
        return torch.from_numpy(whole[random.randrange(12) :][:12].copy())


@pytest.mark.parametrize(("kind", "kept"), [(Cut, False), (Turned, True), (Mixed, True), (Volumes, True)])
def test_what_is_given_something_else_in_each_pass_is_not_kept(kind, kept):
    assert encode(kind()).startswith("left as it is") is not kept


@pytest.mark.parametrize("kind", [Draws, Counts, Holds, OfArrays, Clocked])
def test_what_is_not_alike_each_time_is_left_as_it_is(kind):
    dataset = kind()
    if kind is not Clocked:
        assert encode(dataset).startswith("left as it is")
    loader = compile_loader(DataLoader(dataset, batch_size=6))
    list(loader)
    assert loader.explain().startswith("left as it is")


def test_a_draw_for_one_sample_alone_ends_it():
    dataset = Draws()
    dataset.seldom = "photo 5"
    assert "Draws.load draws random numbers" in encode(dataset)


def seeded(loader):
    random.seed(3), np.random.seed(3), torch.manual_seed(3)
    return list(loader)


def change_size(dataset, patch):
    dataset.size = 20


def change_names(dataset, patch):
    dataset.names[3] = "photo 77"


def change_global(dataset, patch):
    SHIFT[0] = 1


def change_function(dataset, patch):
    patch.setattr(type(dataset), "load", lambda self, name: slow_pixels(99, self.size))


def change_inner_function(dataset, patch):
    plain = slow_pixels
    patch.setitem(globals(), "slow_pixels", lambda number, side=24: plain(number + 1, side))


@pytest.mark.parametrize("change", [change_size, change_names, change_global, change_function, change_inner_function])
@pytest.mark.parametrize("within_a_pass", [False, True])
def test_what_the_script_changes_is_seen_at_the_next_batch(monkeypatch, change, within_a_pass):
    dataset = Shelf()
    loader, plain = (made(DataLoader(dataset, batch_size=5)) for made in (compile_loader, lambda loader: loader))
    try:
        list(loader), list(loader)
        if within_a_pass:
            batches = iter(loader)
            next(batches)
            change(dataset, monkeypatch)
            random.seed(3), np.random.seed(3), torch.manual_seed(3)
            ours = list(batches)
            theirs = iter(plain)
            next(theirs)
            random.seed(3), np.random.seed(3), torch.manual_seed(3)
            assert same(ours, list(theirs))
        else:
            change(dataset, monkeypatch)
            assert same(seeded(loader), seeded(plain))
    finally:
        SHIFT[0] = 0


class OfFiles(Shelf):
    def __init__(self, folder):
        super().__init__()
        self.paths = [Path(folder, f"{at}.npy") for at in range(20)]
        for at, path in enumerate(self.paths):
            np.save(path, slow_pixels(at))

    def read(self, path):
        return np.sort(np.load(path), axis=1) ^ slow_pixels(1)

    def __getitem__(self, at):
        return self.read(self.paths[at]) * random.random(), at


def test_a_file_that_is_written_anew_is_read_anew(tmp_path):
    dataset = OfFiles(tmp_path)
    loader = compile_loader(DataLoader(dataset, batch_size=5))
    list(loader), list(loader)
    assert loader.explain().startswith("20 results of OfFiles.read")
    np.save(dataset.paths[7], slow_pixels(123))
    assert same(seeded(loader), seeded(DataLoader(dataset, batch_size=5)))


class Failing(Shelf):
    def load(self, name):
        if name == "photo 5":
            raise KeyError("no such photo")
        return super().load(name)


def test_what_the_function_raises_is_raised_and_nothing_stays_in_its_place():
    plain = Failing.__dict__["load"]
    loader = compile_loader(DataLoader(Failing()))
    for _ in range(2):
        with pytest.raises(KeyError, match="no such photo"):
            list(loader)
    assert Failing.__dict__["load"] is plain


def test_other_threads_call_the_function_itself():
    dataset, found = Shelf(), []
    loader = compile_loader(DataLoader(dataset, batch_size=5))
    list(loader)
    asked = threading.Thread(target=lambda: found.append(dataset.load("photo 3")))
    for number, _ in enumerate(loader):
        if number == 1:
            asked.start()
            asked.join()
    assert same(found[0], slow_pixels(3))


def test_what_does_not_fit_is_left_alone_with_its_numbers():
    loader = compile_loader(DataLoader(Shelf()), max_bytes=10_000)
    list(loader)
    assert "results of Shelf.load take 36.2 KiB, more than the memory budget" in loader.explain()


def test_a_data_set_ends_with_its_loader():
    kept, dataset = LoaderCaches(), Shelf()
    for _ in range(2):
        list(kept.walk(DataLoader(dataset, batch_size=5), DataLoader.__iter__))
    ended = weakref.ref(dataset)
    del dataset
    gc.collect()
    assert ended() is None


def test_a_trial_repeats_samples_that_it_has():
    dataset, loaded, plain = Shelf(600), unseen.tally(), Shelf.load
    kept = LoaderCaches(purpose="timing")
    loader = DataLoader(dataset, batch_size=10)
    try:
        Shelf.load = functools.wraps(plain)(lambda self, name: unseen.count(loaded, 0) or plain(self, name))
        batches = list(kept.walk(loader, DataLoader.__iter__))
    finally:
        Shelf.load = plain
    assert len(batches) == 60
    assert unseen.counted(loaded)[0][0] < 330


def test_arguments_are_told_apart_by_value_and_kind():
    dataset = Shelf()
    place = dearest_call(dataset, dataset, [0, 5]).place
    assert place.label == "Shelf.load"
    keys = [
        key_of(place, (dataset, value), {}) for value in (1, 1.0, True, "1", b"1", 0.0, -0.0, Path("1"), (1,), None)
    ]
    assert len(set(keys)) == len(keys)
    assert key_of(place, (dataset, [1]), {}) is None
    assert key_of(place, (dataset,), {"name": "a"}) == key_of(place, (Shelf(),), {"name": "a"})
