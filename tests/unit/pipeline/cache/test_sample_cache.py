"""Samples kept one by one: what is random in a transform, and the collate function, are called as the script does."""

import gc
import random
import weakref
from collections import namedtuple

import numpy as np
import pytest
import torch
from PIL import Image
from tests.unit.pipeline import unseen
from tests.unit.pipeline.programs import Program
from tests.unit.pipeline.test_equality import agree
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset

from flatout.pipeline import compile_loader
from flatout.pipeline.read.sample_copies import copied
from flatout.pipeline.serve.compiled_loader import LoaderCaches
from flatout.watch.dataset_state import same

pytestmark = pytest.mark.slow

Pair = namedtuple("Pair", "image label")


class Pictures(Dataset):
    """Images of some cost, and a transform that is called in one of several ways."""

    def __init__(self, transform, form="one", number=20):
        self.transform, self.form, self.number = transform, form, number
        self.wrong = -1

    def __len__(self):
        return self.number

    def open(self, index):
        pixels = np.random.RandomState(index).randint(0, 256, (24, 24, 3), dtype=np.uint8)
        return Image.fromarray(pixels).rotate(index)

    def __getitem__(self, index):
        image = self.open(index)
        if self.form == "pair":
            image, label = self.transform(image, index % 3)
            return image, label
        if self.form == "dict":
            return self.transform({"image": image, "label": index % 3})
        if self.form == "twice":
            return {"views": [self.transform(image), self.transform(image)], "name": str(index)}
        if self.form == "named":
            return Pair(self.transform(image), index)
        return self.transform(image), index % 3


def turned(image):
    """Draw from every stream there is."""
    pixels = np.asarray(image.rotate(random.choice((0, 90)))) * np.random.uniform(0.5, 1)
    return torch.from_numpy(pixels).permute(2, 0, 1) + torch.rand(())


TRANSFORMS = {
    "one": turned,
    "named": turned,
    "twice": turned,
    "pair": lambda image, label: (turned(image), label + random.randint(0, 9)),
    "dict": lambda sample: {**sample, "image": turned(sample["image"])},
}


def encode(dataset, **options):
    return agree(Program(dataset, {"batch_size": 6, "shuffle": True, **options})).explain()


@pytest.mark.parametrize("form", TRANSFORMS)
def test_what_a_random_transform_is_given_is_kept_however_it_is_called(form):
    said = encode(Pictures(TRANSFORMS[form], form))
    assert said.startswith("20 samples kept")
    assert "before their random operations; 40 came from there" in said


def test_parts_and_sums_of_data_sets_are_looked_into():
    whole = ConcatDataset([Pictures(turned, number=7), Subset(Pictures(turned, "twice"), [3, 1, 4, 1])])
    assert encode(whole, collate_fn=list).startswith("11 samples kept")


def test_a_repeated_index_is_drawn_for_each_time():
    assert encode(Pictures(turned), shuffle=False, sampler=[3, 3, 1, 3, 2, 1, 1]).startswith("3 samples kept")


def test_indices_of_another_kind_and_empty_batches_are_asked_for_as_they_are():
    batches = [[0, 1], [], [np.int64(2), torch.tensor(3)]]
    agree(Program(Pictures(turned), {"batch_sampler": batches, "collate_fn": list}))


@pytest.mark.parametrize("collate", [list, lambda samples: [image + torch.rand(()) for image, _ in samples]])
def test_a_collate_function_of_the_scripts_own_may_do_as_it_likes(collate):
    steady = Pictures(lambda image: torch.from_numpy(np.asarray(image).copy()))
    assert "before they are collated" in encode(steady, collate_fn=collate)


class DrawsBefore(Pictures):
    seldom = 0

    def __getitem__(self, index):
        shift = random.randint(0, 9) if not self.seldom or index == self.seldom else 0
        return self.transform(self.open(index)), shift


def test_what_is_drawn_outside_of_a_transform_leaves_the_loader_as_it_is():
    assert "draws random numbers, outside of a transform that it holds" in encode(DrawsBefore(turned))


def test_a_draw_for_one_sample_alone_is_noticed_when_that_is_read():
    dataset = DrawsBefore(turned)
    dataset.seldom = 5
    assert "random numbers are drawn while a sample is read" in encode(dataset)


class Failing(Pictures):
    def __getitem__(self, index):
        if index == 5:
            raise KeyError("no such sample")
        return super().__getitem__(index)


def test_what_the_data_set_raises_is_raised():
    loader = compile_loader(DataLoader(Failing(turned)))
    with pytest.raises(KeyError, match="no such sample"):
        list(loader)
    assert "raised KeyError" in loader.explain()


def test_a_transform_that_is_replaced_in_a_pass_is_followed():
    dataset = Pictures(turned)
    loader = compile_loader(DataLoader(dataset, batch_size=5))
    for _ in range(2):
        batches = iter(loader)
        next(batches)
        dataset.transform = lambda image: torch.zeros(2) + torch.rand(()) * 0
        assert next(batches)[0].shape == (5, 2)
        dataset.transform = turned


class Changing(Pictures):
    """Reads a file that is not its own."""

    path = None

    def open(self, index):
        return super().open(index + int(self.path.read_text()))


def test_a_data_set_that_gives_something_else_falls_back_with_a_reason(tmp_path, monkeypatch):
    monkeypatch.setattr(Changing, "path", tmp_path / "shift")
    Changing.path.write_text("0")
    loader = compile_loader(DataLoader(Changing(turned), batch_size=5))
    list(loader)
    Changing.path.write_text("1")
    torch.manual_seed(0), np.random.seed(0), random.seed(0)
    ours = list(loader)
    torch.manual_seed(0), np.random.seed(0), random.seed(0)
    assert same(ours, list(DataLoader(Changing(turned), batch_size=5)))
    assert "20 samples kept" in loader.explain()  # read anew, as the file is now
    for number in range(2, 4):
        Changing.path.write_text(str(number))
        list(loader)
    assert "changes from pass to pass: the file" in loader.explain()


def test_what_does_not_fit_is_left_alone_with_its_numbers():
    loader = compile_loader(DataLoader(Pictures(turned)), max_bytes=10_000)
    list(loader)
    assert "20 samples take 56.2 KiB, more than the memory budget" in loader.explain()


def test_a_data_set_ends_with_its_loader():
    kept, dataset = LoaderCaches(), Pictures(turned)
    for _ in range(2):
        list(kept.walk(DataLoader(dataset, batch_size=5), DataLoader.__iter__))
    ended = weakref.ref(dataset)
    del dataset
    gc.collect()
    assert ended() is None


def test_memory_is_given_back_when_the_data_set_changes():
    dataset = Pictures(turned)
    loader = compile_loader(DataLoader(dataset), max_bytes=60_000)
    list(loader)
    dataset.number = 19
    list(loader)
    assert loader.explain().startswith("19 samples kept")


def test_a_trial_repeats_what_it_has_and_is_seen_to_serve(monkeypatch):
    hits, opened, dataset, plain = [], unseen.tally(), Pictures(turned, number=400), Pictures.open
    monkeypatch.setattr(Pictures, "open", lambda self, index: unseen.count(opened, index) or plain(self, index))
    kept = LoaderCaches(purpose="timing", hit=lambda: hits.append(1))
    loader = DataLoader(dataset, batch_size=10)
    batches = list(kept.walk(loader, DataLoader.__iter__))
    assert len(batches) == len(hits) == 40
    assert sum(unseen.counted(opened, 400)[0]) < 400


@pytest.mark.parametrize("purpose", ["verify", "timing"])
def test_a_trial_of_a_collate_function_that_draws_is_served(purpose):
    hits = []
    steady = Pictures(lambda image: torch.from_numpy(np.asarray(image).copy()), number=30)
    kept = LoaderCaches(purpose=purpose, hit=lambda: hits.append(1))
    loader = DataLoader(steady, 10, collate_fn=lambda samples: [image + torch.rand(()) for image, _ in samples])
    for _ in range(2):
        list(kept.walk(loader, DataLoader.__iter__))
    assert len(hits) == 6


def test_samples_that_are_kept_one_by_one_leave_the_folder_for_kept_rows_alone(tmp_path):
    loader = compile_loader(DataLoader(Pictures(turned), collate_fn=list), folder=tmp_path)
    for _ in range(2):
        list(loader)
    assert loader.explain().startswith("20 samples kept")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "value",
    [
        torch.arange(6).view(2, 3).t(),
        np.asfortranarray(np.ones((2, 3))),
        [1, "a", None, 2.5, b"b", np.int32(3)],
        {"a": (torch.ones(2), [np.zeros(1)])},
        Pair(torch.ones(1), 3),
    ],
)
def test_a_copy_has_the_same_bits_and_strides_in_memory_of_its_own(value):
    made = copied(value)
    assert same(made, value)
    if isinstance(value, np.ndarray | torch.Tensor):
        made[...] = 7
        assert not same(made, value)


@pytest.mark.parametrize(
    "value", [object(), torch.arange(6)[::2], np.arange(6)[::2], torch.ones(1, requires_grad=True)]
)
def test_what_cannot_be_copied_exactly_is_not(value):
    with pytest.raises(ValueError, match=r"an? "):
        copied(value)
