"""Of what operations make, the stage that is kept: large ones only where batches are not about as fast without."""

import pytest
import torch
from tests.torchvision_stub import torchvision
from tests.unit.pipeline.compared import compared
from tests.unit.pipeline.compile.test_batch_compiler import Pictures
from torch.utils.data import DataLoader, TensorDataset

from flatout.pipeline.cache import cache_stage
from flatout.pipeline.compile.batch_compiler import compiler_of

v1 = torchvision.transforms

LARGE = v1.Compose([v1.Resize((40, 40)), v1.ToTensor(), v1.Normalize(0.1, 0.3)])
LAST, AS_READ = 3, 0


HELD = []  # data sets: a maker holds none


@pytest.fixture(autouse=True)
def let_go():
    yield
    HELD.clear()


def compiler(transform=LARGE, **settings):
    HELD.append(Pictures(transform, **settings))
    made = compiler_of(DataLoader(HELD[-1], batch_size=4))
    assert made is not None
    return made


@pytest.fixture
def little(monkeypatch):
    monkeypatch.setattr(cache_stage, "_SOME_MEMORY", 0)


def timed(monkeypatch, **seconds):
    """Let batches take so long; a stage that is not named here must not be timed."""
    monkeypatch.setattr(cache_stage, "_batch_s", lambda compiler, at, rows: seconds[f"stage_{at}"])


@pytest.mark.usefixtures("little")
@pytest.mark.parametrize(("as_read_s", "kept"), [(1.7, AS_READ), (1.8, LAST)])
def test_what_is_read_is_kept_where_batches_are_about_as_fast(monkeypatch, as_read_s, kept):
    timed(monkeypatch, stage_0=as_read_s, stage_3=1.0)
    assert cache_stage.worth_keeping(compiler(), alone=True) == kept


@pytest.mark.usefixtures("little")
def test_the_latest_of_several_small_stages_is_kept(monkeypatch):
    twice = v1.Compose([v1.Resize((10, 10)), v1.Resize((60, 60)), v1.ToTensor()])
    timed(monkeypatch, stage_0=1.0, stage_1=1.0, stage_3=1.0)
    assert cache_stage.worth_keeping(compiler(twice), alone=True) == 1


@pytest.mark.usefixtures("little")
@pytest.mark.parametrize(
    ("transform", "settings", "alone"),
    [
        (LARGE, {}, False),  # ranks must agree on what they share
        (v1.Compose([v1.Resize((6, 6)), v1.ToTensor()]), {}, True),  # what is read is not much smaller
        (LARGE, {"sides": ((9, 9), (12, 7))}, True),  # images of several sizes
    ],
)
def test_nothing_is_timed_where_there_is_no_choice(monkeypatch, transform, settings, alone):
    timed(monkeypatch)
    made = compiler(transform, **settings)
    assert cache_stage.worth_keeping(made, alone) == made.num_stages - 1


def test_little_memory_is_not_worth_a_look(monkeypatch):
    timed(monkeypatch)
    assert cache_stage.worth_keeping(compiler(), alone=True) == LAST


@pytest.mark.usefixtures("little")
def test_samples_that_have_no_other_stage_are_kept_as_they_are(monkeypatch):
    timed(monkeypatch)
    made = compiler_of(DataLoader(TensorDataset(torch.rand(9, 3)), batch_size=4))
    assert cache_stage.worth_keeping(made, alone=True) == 0


@pytest.mark.usefixtures("little")
@pytest.mark.parametrize("times_as_long", [1e9, 0.0])  # kept as they are read, or as they are at last
@pytest.mark.parametrize(
    "transform",
    [LARGE, v1.Compose([v1.Resize((40, 40)), v1.RandomCrop(32), v1.RandomHorizontalFlip(), v1.ToTensor()])],
)
@pytest.mark.slow
def test_samples_and_random_streams_are_the_same_whatever_is_kept(monkeypatch, times_as_long, transform):
    monkeypatch.setattr(cache_stage, "_TIMES_AS_LONG", times_as_long)
    told = compared(lambda: (Pictures(transform), {}))
    assert told.startswith("made in batches; 30 samples kept")
    made = compiler(transform)
    assert cache_stage.worth_keeping(made, alone=True) == (AS_READ if times_as_long else made.num_stages - 1)
