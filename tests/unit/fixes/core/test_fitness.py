"""Why fixes do not fit a recorded script."""

from dataclasses import replace

import pytest

from flatout.fixes.core.catalog import fixes
from flatout.fixes.core.fitness import drawn, no_loader, off_cuda
from flatout.fixes.core.fix import Fix, Unfit
from flatout.rules.core.catalog import catalog
from flatout.schema.facts import LoaderFacts, SamplePrefix
from flatout.schema.phase import Phase
from flatout.schema.run import End, Environment, Frame, Header, Run
from flatout.schema.trial import Equivalence

BY_NAME = {fix.name: fix for fix in fixes()}
OF_NUMPY = SamplePrefix(
    checked=4,
    first_random=Frame("/home/a/train.py", 23, "Drawn.__getitem__"),
    drawn_from="numpy's global generator",
    has_transform=False,
)
DRAWN = LoaderFacts(
    name="Drawn", is_training=True, num_samples=4000, num_batches=4000, batch_size=1, fetches=30, prefix=OF_NUMPY
)
STREAM = LoaderFacts(name="Stream", is_training=True, iterable_style=True)


def a_run(*loaders, **machine):
    return Run(header=Header(script="train.py"), loaders=loaders, environment=Environment(**{"num_cpus": 2, **machine}))


def test_a_recording_that_was_ended_has_not_told_which_loaders_there_are():
    assert no_loader(a_run()) == "no DataLoader gives the training its batches"
    told = BY_NAME["compiled-input"].choices(replace(a_run(), end=End(reason="killed"))).reason
    assert told == "which loaders the training has is not known: the recording was ended before it had told"


def test_a_reason_is_an_empty_choice_that_says_why():
    assert Unfit("nothing to copy") == ()
    assert Unfit("nothing to copy").reason == "nothing to copy"


def test_a_fix_says_why_it_does_not_fit_and_nothing_where_it_may():
    def fix(choices):
        return Fix(
            name="t", equivalence=Equivalence.BITWISE, phases=(Phase.HOST,), patch=lambda site: None, choices=choices
        )

    assert fix(lambda run: Unfit("there is no loader")).unfit(a_run()) == "there is no loader"
    assert fix(lambda run: ()).unfit(a_run()) == "it has nothing to do here"  # a fix of the user's own
    assert fix(lambda run: ({},)).unfit(a_run()) == ""


@pytest.mark.parametrize("fix", BY_NAME.values(), ids=BY_NAME)
def test_every_fix_that_offers_nothing_says_why_in_one_line(fix):
    runs = [example.run for rule in catalog() for example in (*rule.fires_on, *rule.quiet_on)]
    runs += [a_run(), a_run(STREAM), a_run(DRAWN), a_run(DRAWN, device_kind="cuda"), a_run(device_kind="mps")]
    for run in runs:
        choices = fix.choices(run)
        assert choices or (isinstance(choices, Unfit) and choices.reason), run
        assert "\n" not in fix.unfit(run)


def test_samples_that_are_drawn_are_named_with_generator_class_and_line():
    assert drawn(DRAWN) == "samples are drawn from numpy's global generator (Drawn, train.py:23)"
    unknown = replace(DRAWN, prefix=replace(OF_NUMPY, drawn_from="", first_random=None))
    assert drawn(unknown) == "samples are other ones each time (Drawn)"
    assert drawn(replace(DRAWN, prefix=None)) == ""
    assert drawn(replace(DRAWN, prefix=replace(OF_NUMPY, deterministic=True))) == ""


@pytest.mark.parametrize("name", ["loader-workers", "compiled-input", "cached-input"])
def test_nothing_that_keeps_or_moves_samples_is_offered_where_the_data_set_draws_them(name):
    workers = int(name == "loader-workers")  # where there are none, states of the streams are predicted
    why = BY_NAME[name].unfit(a_run(replace(DRAWN, num_workers=workers), num_cpus=4))
    assert why.startswith("samples are drawn from numpy's global generator (Drawn, train.py:23)")


@pytest.mark.parametrize("name", ["loader-workers", "core-split"])
def test_a_loader_without_workers_gets_some_though_its_samples_are_drawn(name):
    assert BY_NAME[name].unfit(a_run(DRAWN, num_cpus=4)) == ""
    offered = BY_NAME[name].choices(a_run(DRAWN, num_cpus=4))
    assert all(each["predicted"] is True for each in offered)


def test_samples_drawn_by_a_transform_may_be_kept_before_it():
    augmented = replace(DRAWN, prefix=replace(OF_NUMPY, has_transform=True))
    assert BY_NAME["compiled-input"].unfit(a_run(augmented)) == ""
    assert BY_NAME["loader-workers"].unfit(a_run(replace(augmented, num_workers=1), num_cpus=4)) != ""


def test_a_validation_loader_whose_samples_are_the_same_may_be_kept_beside_a_training_that_draws():
    steady = LoaderFacts(name="Images", num_samples=100)
    assert BY_NAME["compiled-input"].unfit(a_run(DRAWN, steady)) == ""


@pytest.mark.parametrize("name", ["loader-workers", "compiled-input", "cached-input"])
def test_a_stream_is_named(name):
    stream = replace(STREAM, num_workers=2 if name == "loader-workers" else 0)
    assert BY_NAME[name].unfit(a_run(stream)).startswith("Stream is an iterable data set")


@pytest.mark.parametrize(
    "name", ["loader-workers", "core-split", "compiled-input", "cached-input", "device-prefetch", "pinned-copy"]
)
def test_without_a_loader_nothing_of_a_loader_is_offered(name):
    kind = "cuda" if name in ("device-prefetch", "pinned-copy") else "cpu"
    assert BY_NAME[name].unfit(a_run(device_kind=kind)) == "no DataLoader gives the training its batches"


@pytest.mark.parametrize(
    "name", ["allocator", "cudnn-search", "device-prefetch", "device-resident-input", "pinned-copy", "tf32"]
)
def test_without_a_device_nothing_of_a_device_is_offered(name):
    assert BY_NAME[name].unfit(a_run(DRAWN)) == "it needs a CUDA device, and this training runs on the CPU"
    assert off_cuda(a_run(device_kind="mps")).endswith("runs on mps")
