"""`flatout diagnose --only loader`: the script comes to its first training step, and no further.

Modules: flatout.probe.benchmark.in_script, flatout.engine.loader_benchmark
"""

import json

import pytest

from tests.e2e.support import training

WORKING = """
class Working(Data):
    def __getitem__(self, index):
        sum(number * number for number in range(20_000))
        return self.x[index], self.y[index]

held_out = DataLoader(Data(), batch_size=8)
with torch.no_grad():
    for batch in held_out:
        pass
Data = Working
weights = model.weight.detach().clone()
"""
STOPPED = 'open("stepped", "w").close()'


@pytest.fixture
def measured(flatout):
    """Return what the command line writes as JSON about the loaders of a script, and how it ended."""

    def run(script, *words):
        flatout.write(script)
        ended = flatout("diagnose", "--only", "loader", "--budget", "2m", "--json", "loaders.json", *words, "train.py")
        file = flatout.folder / "loaders.json"
        return ended, json.loads(file.read_text()) if file.exists() else None

    return run


def test_the_training_loader_is_measured_and_no_step_is_made(measured, flatout):
    ended, found = measured(training(before=WORKING, each_step=STOPPED))
    assert ended.code == 0, ended.err
    (loader,) = found["loaders"]  # the held-out one was drawn from without gradients
    assert (loader["name"], loader["batch_size"], loader["workers"]) == ("Working", 8, 0)
    assert loader["created_at"]["file"].endswith("train.py")
    assert loader["samples_s"]["n"] >= 1
    assert loader["made_ms"]["low"] <= loader["made_ms"]["median"] <= loader["made_ms"]["high"]
    assert loader["stages"] and loader["settings"] and loader["best"]
    assert any("range(20_000)" in line["code"] for line in loader["lines"])
    assert "Working, batches of 8, no workers (train.py:" in ended.out
    assert not (flatout.folder / "stepped").exists()


def test_a_script_that_catches_everything_still_trains_no_further(measured, flatout):
    greedy = training(each_step=STOPPED).replace("loss.backward()", GREEDY)
    ended, found = measured(greedy)
    assert ended.code == 0, ended.err
    assert len(found["loaders"]) == 1
    assert not (flatout.folder / "stepped").exists()


GREEDY = """try:
        loss.backward()
    except BaseException:
        pass"""


GRADIENTS = """
class Gradients(Data):
    def __getitem__(self, index):
        x = self.x[index].clone().requires_grad_()
        slope, = torch.autograd.grad(x.square().sum(), x)
        return slope, self.y[index]

Data = Gradients
"""


def test_gradients_that_a_data_set_computes_are_no_training_step(measured):
    ended, found = measured(training(before=GRADIENTS))
    assert ended.code == 0, ended.err
    (loader,) = found["loaders"]
    assert loader["name"] == "Gradients"
    assert loader["batches"] == 200
    assert loader["stages"]


def test_a_script_without_a_loader_is_told_so(measured):
    ended, found = measured(
        training(steps=3).replace("for x, y in data:", "for x, y in [(torch.ones(2, 8), torch.ones(2, 1))]:")
    )
    assert (ended.code, found) == (3, None)
    assert "drew from no DataLoader before a backward pass" in ended.err


def test_a_script_that_fails_before_says_what_failed(measured):
    ended, found = measured(training(before="raise RuntimeError('no data here')"))
    assert (ended.code, found) == (1, None)
    assert "no data here" in ended.err


def test_a_loader_that_fails_when_it_is_measured_is_named(measured):
    breaks = """
class Once(Data):
    left = 40
    def __getitem__(self, index):
        Once.left -= 1
        if Once.left < 0:
            raise ValueError("used up")
        return self.x[index], self.y[index]

Data = Once
"""
    ended, found = measured(training(before=breaks))
    assert (ended.code, found) == (3, None)
    assert "the loader of Once failed: ValueError: used up" in " ".join(ended.err.split())
