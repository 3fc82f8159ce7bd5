"""Batches that the script makes itself, without a `DataLoader`."""

from dataclasses import replace

import pytest

from flatout.rules import example, line
from flatout.rules.facts.manual_loading import batch_making, fed_by_torch, in_forward_time, in_host_time
from flatout.rules.facts.user_lines import COMPILED
from flatout.schema.facts import LoaderFacts, ModelFacts
from flatout.schema.phase import Phase

SOURCE = """\
def rows():
    for index in order:
        yield read(index)
def read(index):
    return table[index]
def outer():
    def inner():
        yield 1
    return inner
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(SOURCE)
    return str(path)


def lead(*frames):
    return line(0.4, *frames, phase=Phase.HOST, part="lead")


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("get_batch", True),
        ("Rows.__next__", True),
        ("Rows.__iter__", True),
        ("train_batches", False),  # the loop itself
        ("run_epoch_batch", False),
        ("prepare", False),
    ],
)
def test_functions_that_are_named_for_it_make_batches(name, counts):
    assert (in_host_time(example(lines=[lead(("gone.py", 3, name))]).run) != ()) is counts


@pytest.mark.parametrize(("at", "name", "counts"), [(2, "rows", True), (5, "read", False), (9, "outer", False)])
def test_a_generator_makes_batches_and_a_function_around_one_does_not(script, at, name, counts):
    assert (in_host_time(example(lines=[lead((script, at, name))]).run) != ()) is counts


def test_what_a_generator_calls_counts_with_it(script):
    assert in_host_time(example(lines=[lead((script, 5, "read"), (script, 3, "rows"))]).run) != ()


def test_only_time_before_the_forward_pass_counts():
    cost = line(0.4, ("gone.py", 3, "get_batch"), phase=Phase.HOST, part="tail")
    assert in_host_time(example(lines=[cost]).run) == ()


@pytest.mark.parametrize(
    ("facts", "fed"),
    [({"fetches": 3}, True), ({"epochs_started": 1}, True), ({}, False), ({"fetches": 3, "is_training": False}, False)],
)
def test_with_a_loader_that_trains_nothing_of_it_is_the_scripts(facts, fed):
    loader = LoaderFacts(**{"is_training": True, **facts})
    run = example(lines=[lead(("gone.py", 3, "get_batch"))], loaders=(loader,)).run
    assert fed_by_torch(run) is fed
    assert (in_host_time(run) == ()) is fed


def test_what_was_recorded_as_a_generators_time_is_taken_but_for_the_model():
    def generator(*frames, **detail):
        return line(0.3, *frames, stage="generator", **detail)

    mine = generator(("train.py", 3, "rows"))
    model = generator(("model.py", 7, "Net.forward"), ("train.py", 3, "rows"))
    compiled = generator(("train.py", 3, "rows"), leaf="torch", leaf_function=COMPILED)
    other = line(0.3, ("train.py", 9, "collate"), stage="collate")
    assert batch_making(example(lines=[mine, model, compiled, other]).run) == (mine,)


LOOP = ("gone.py", 50, "train")
BACKWARD = line(1.0, LOOP, phase=Phase.BACKWARD)


def before_the_loss(seconds, *frames, leaf="", uses_torch=False):
    return line(seconds, *frames, LOOP, phase=Phase.FORWARD, part="lead", leaf=leaf, leaf_uses_torch=uses_torch)


def test_where_no_module_is_called_functions_outside_torch_make_batches():
    features = before_the_loss(1.2, ("gone.py", 20, "describe"), leaf="numpy")
    helper = before_the_loss(0.8, ("gone.py", 30, "ratio"), ("gone.py", 21, "describe"))
    model = before_the_loss(2.0, ("gone.py", 40, "model"))
    run = example(lines=[features, helper, model, BACKWARD]).run
    assert in_forward_time(run) == (features, helper)
    assert in_forward_time(replace(run, models=(ModelFacts(name="Net"),))) == ()
    assert in_forward_time(replace(run, loaders=(LoaderFacts(is_training=True, fetches=3),))) == ()


def test_a_statement_of_the_loop_makes_batches_where_a_library_runs_that_does_not_use_torch():
    rows = line(1.0, ("gone.py", 48, "train"), phase=Phase.FORWARD, part="lead", leaf="pandas")
    layers = line(1.0, ("gone.py", 49, "train"), phase=Phase.FORWARD, part="lead", leaf="einops", leaf_uses_torch=True)
    assert in_forward_time(example(lines=[rows, layers, BACKWARD]).run) == (rows,)


LIBRARIES = """\
def describe(rows):
    a = np.log1p(income[rows])
    return torch.from_numpy(a)
def model(x):
    return torch.tanh(x @ np.float32(2))
"""


def test_functions_in_c_are_known_by_the_statement_that_calls_them(tmp_path):
    path = tmp_path / "features.py"
    path.write_text(LIBRARIES)
    described = [before_the_loss(1.0, (str(path), at, "describe")) for at in (2, 3)]
    model = before_the_loss(1.0, (str(path), 5, "model"))
    assert in_forward_time(example(lines=[*described, model, BACKWARD]).run) == tuple(described)
