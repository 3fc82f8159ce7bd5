"""What calling `dataset[i]` again shows."""

import inspect
import random
import time

import numpy as np
import pytest
import torch

from flatout.probe.loader.repeated_samples import _num_bytes, look_at_samples


class Data(torch.utils.data.Dataset):
    def __init__(self, length=8):
        self.length = length

    def __len__(self):
        return self.length


class Steady(Data):
    def __getitem__(self, index):
        time.sleep(0.002)
        return torch.full((3,), float(index)), {"label": index, "name": str(index)}


class Augmented(Data):
    def __getitem__(self, index):
        time.sleep(0.03)
        sample = np.full(4, float(index))
        sample = sample * self.factor()
        time.sleep(0.01)
        return torch.from_numpy(sample)

    def factor(self):
        return 1 + torch.rand(()).item()  # DRAW


class WithPython(Augmented):
    def factor(self):
        return 1 + random.random()


class WithNumpy(Augmented):
    def factor(self):
        return 1 + np.random.rand()


class OwnPython(Data):
    def __init__(self):
        super().__init__()
        self.random = random.Random(0)

    def __getitem__(self, index):
        return torch.tensor(self.random.random())


class OwnNumpy(Data):
    def __init__(self):
        super().__init__()
        self.generator = np.random.default_rng(0)

    def __getitem__(self, index):
        return self.generator.normal(size=3)


class SeededByIndex(Data):
    def __getitem__(self, index):
        return np.random.default_rng(index).normal(size=3)


class LongLoop(Data):
    """Many cheap lines before the draw: following them must not make them look dear."""

    def __getitem__(self, index):
        total = 0
        for number in range(3000):
            total += number
        value = torch.rand(())
        time.sleep(0.02)
        return value + total


class Rows(Data):
    def __init__(self):
        super().__init__(64)
        self.rows = torch.arange(64 * 100.0).reshape(64, 100)

    def __getitem__(self, index):
        return self.rows[index]


class Noisy(Data):
    def __getitem__(self, index):
        return torch.rand(2)


class NoisyPython(Data):
    def __getitem__(self, index):
        return random.random()


class NoisyNumpy(Data):
    def __getitem__(self, index):
        return np.random.randint(1000)


class Transformed(Data):
    def __init__(self, dataset, transform):
        super().__init__()
        self.dataset, self.transform = dataset, transform

    def __getitem__(self, index):
        return self.transform(self.dataset[index])


class Graph:
    def __init__(self, nodes, label):
        self.nodes, self.label = nodes, label


class Objects(Data):
    def __init__(self, noise=torch.zeros):
        super().__init__()
        self.nodes, self.noise = torch.arange(64.0), noise

    def __getitem__(self, index):
        return Graph(self.nodes[index : index + 2], float(self.noise(())))


class Circular(Data):
    def __getitem__(self, index):
        made = Graph(index, 0)
        made.nodes = [made]
        return made


class Broken(Data):
    def __getitem__(self, index):
        raise OSError("the file is gone")


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter(range(3))


def line_of(kind, text):
    lines, first = inspect.getsourcelines(kind)
    return first + next(number for number, line in enumerate(lines) if text in line)


def test_the_same_sample_every_time():
    found = look_at_samples(Steady())
    assert (found.deterministic, found.prefix_share, found.first_random, found.checked) == (True, 1.0, None, 4)
    assert 0.002 <= found.seconds < 0.1
    assert found.cpu_seconds < 0.002
    assert found.sample_bytes == 13  # and the name


@pytest.mark.parametrize("kind", [Augmented, WithPython, WithNumpy])
@pytest.mark.slow
def test_the_first_random_draw_and_what_comes_before_it(kind):
    found = look_at_samples(kind())
    assert not found.deterministic
    assert found.prefix_share == pytest.approx(0.75, abs=0.2)  # of time, on a machine that others use
    assert found.first_random is not None
    text = "random.random()" if kind is WithPython else "np.random.rand" if kind is WithNumpy else "# DRAW"
    assert (found.first_random.file, found.first_random.line) == (__file__, line_of(kind, text))
    assert found.first_random.function == f"{kind.__name__}.factor"


@pytest.mark.parametrize("kind", [OwnPython, OwnNumpy])
def test_a_generator_of_its_own_is_random_without_a_known_line(kind):
    found = look_at_samples(kind())
    assert (found.deterministic, found.prefix_share, found.first_random) == (False, 0.0, None)


@pytest.mark.parametrize(
    ("kind", "generator"),
    [
        (Noisy, "torch's global generator"),
        (NoisyPython, "Python's global generator"),
        (NoisyNumpy, "numpy's global generator"),
        (OwnNumpy, "a random generator of its own"),
        (Steady, ""),
        (Rows, ""),
    ],
)
def test_what_samples_are_drawn_from_is_named(kind, generator):
    assert look_at_samples(kind()).drawn_from == generator


def test_a_transform_is_seen_also_in_a_data_set_that_another_one_holds():
    assert not look_at_samples(Noisy()).has_transform
    assert look_at_samples(Transformed(Noisy(), torch.nn.Identity())).has_transform
    inner = Transformed(Noisy(), torch.nn.Identity())
    assert look_at_samples(torch.utils.data.Subset(inner, range(4))).has_transform
    assert look_at_samples(torch.utils.data.ConcatDataset([Noisy(), inner])).has_transform
    assert not look_at_samples(torch.utils.data.Subset(Noisy(), range(4))).has_transform


def test_objects_are_compared_by_what_they_hold():
    found = look_at_samples(Objects())
    assert found.deterministic
    assert found.shares_memory
    assert found.sample_bytes == 4 * 2
    assert not look_at_samples(Objects(noise=torch.rand)).deterministic


def test_objects_that_hold_themselves_are_looked_at_for_a_while():
    assert not look_at_samples(Circular()).deterministic


def test_a_generator_seeded_by_the_index_is_the_same_every_time():
    assert look_at_samples(SeededByIndex()).deterministic


@pytest.mark.slow
def test_following_lines_does_not_make_them_dear():
    found = look_at_samples(LongLoop())
    assert not found.deterministic
    assert found.first_random.line == line_of(LongLoop, "torch.rand(())")
    assert min(look_at_samples(LongLoop()).prefix_share for _ in range(4)) < 0.3  # traced as it comes: 0.1 to 0.6


def test_a_row_of_an_array_in_memory_is_a_view():
    found = look_at_samples(Rows())
    assert (found.shares_memory, found.deterministic, found.sample_bytes) == (True, True, 400)
    assert not look_at_samples(Steady()).shares_memory


@pytest.mark.parametrize(
    ("dataset", "reason"),
    [
        (Broken(), "dataset[i] raised OSError"),
        (Data(0), "dataset[i] raised"),
        (Data(3), "dataset[i] raised NotImplementedError"),
        (Stream(), "the dataset has no __getitem__"),
        (object(), "the dataset has no __getitem__"),
    ],
)
def test_what_cannot_be_tried_says_why(dataset, reason):
    found = look_at_samples(dataset)
    assert found.reason.startswith(reason)
    assert (found.checked, found.deterministic) == (0, False)


@pytest.mark.parametrize("dataset", [Augmented(), WithPython(), WithNumpy(), Broken(), Stream()])
@pytest.mark.slow
def test_the_script_s_random_states_are_left_as_they_were(dataset):
    states = random.getstate(), torch.get_rng_state(), np.random.get_state()
    look_at_samples(dataset)
    assert random.getstate() == states[0]
    assert torch.equal(torch.get_rng_state(), states[1])
    assert all(np.array_equal(one, other) for one, other in zip(np.random.get_state(), states[2], strict=True))


def test_the_size_of_a_sample_counts_whatever_holds_its_bytes():
    picture = pytest.importorskip("PIL.Image").new("RGB", (10, 20))
    sample = {"image": np.zeros((4, 5), np.uint8), "parts": [torch.zeros(3), (b"12", "345")], "picture": picture}
    assert _num_bytes(sample) == 20 + 12 + 5 + 600
    assert _num_bytes(7) == 0


class Listed(Data):
    def __getitem__(self, index):
        return {"values": [0.5] * 24, "label": index}


def test_python_numbers_of_a_sample_are_counted_with_the_place_that_returns_them():
    found = look_at_samples(torch.utils.data.Subset(Listed(), [0, 2, 4, 6]))
    assert found.numbers == 25
    assert (found.made_at.file, found.made_at.function) == (__file__, "Listed.__getitem__")
    assert found.made_at.line == inspect.getsourcelines(Listed.__getitem__)[1]
    assert look_at_samples(Steady()).numbers == 1  # the label
    assert look_at_samples(torch.utils.data.TensorDataset(torch.ones(8, 3))).made_at is None
