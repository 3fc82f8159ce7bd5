"""Which ceilings are measured, on a scripted machine."""

from dataclasses import replace

import pytest
from tests.unit.report.specimens import run

from flatout.analysis.breakdown import account
from flatout.engine.process.target import Target
from flatout.engine.trial import headroom
from flatout.schema.facts import (
    HELD_INPUT,
    HELD_RAW,
    HELD_SAMPLES,
    HELD_TRANSFER,
    LOADER_ALONE,
    LoaderFacts,
    Stage,
)
from flatout.schema.trial import Pair

LOADER = LoaderFacts(is_training=True, num_batches=100)


@pytest.fixture
def measured(monkeypatch, tmp_path):
    """Return a function that measures the headroom of a run whose steps take `candidate_ms` with its input held."""

    def measure(
        loaders=(LOADER,), pairs=8, candidate_ms=5.0, max_s=60.0, missing=(), header=None, device_kind="cpu",
        start_method="", **shares
    ):  # fmt: skip
        asked = []

        class Bench:
            def __init__(self, target, folder, watch, pace, **named):
                asked.append({"pace": pace, **named})

            def ceilings(self, arms, measured, **named):
                settings = [selection.settings["place"] for (selection,) in arms]
                asked[-1].update(named, places=settings)
                assert len(measured) == len(arms) + 1
                for place, one in zip([*settings, "alone"], measured, strict=True):
                    one.pairs = [Pair(10.0, candidate_ms)] * pairs
                    one.decision = "not applied" if place in missing else "faster"

        monkeypatch.setattr(headroom, "Bench", Bench)
        found = replace(run(**shares), loaders=loaders)
        machine = replace(found.environment, device_kind=device_kind, start_method=start_method)
        found = replace(found, header=replace(found.header, **(header or {})), environment=machine)
        target = Target("train.py", ("python", "train.py"))
        kept = headroom.measure_headroom(
            target, tmp_path, found, account(found), max_s=max_s, within_s=90.0, watch=lambda steps: None
        )
        return kept, asked

    return measure


def names(ceilings):
    return [each.ceiling for each in ceilings]


def test_the_input_is_held_at_every_place_that_there_is_in_one_start(measured):
    ceilings, (asked,) = measured(input=50, forward=50)
    assert names(ceilings) == [HELD_INPUT, HELD_SAMPLES, HELD_RAW, LOADER_ALONE]
    assert asked["places"] == ["host", "sample", "raw"]
    assert {(each.median_ms, each.num_pairs) for each in ceilings} == {(5.0, 8)}
    assert all(each.speedup == pytest.approx(2.0) and each.low <= each.speedup <= each.high for each in ceilings)


def test_copies_are_held_on_the_device_where_they_take_time(measured):
    ceilings, (asked,) = measured(input=3, transfer=20, forward=77)
    assert names(ceilings) == [HELD_INPUT, HELD_TRANSFER, LOADER_ALONE]
    assert asked["places"] == ["host", "device"]


def test_of_a_list_of_transforms_the_part_before_the_first_random_one_is_held_too(measured):
    listed = replace(LOADER, stages=(Stage(name="Resize"), Stage(name="RandomCrop")))
    assert measured(input=50, forward=50, loaders=(listed,))[1][0]["places"] == ["host", "sample", "raw", "fixed"]


@pytest.mark.parametrize(("pins", "last"), [(False, "pinned"), (True, "device")])
def test_beside_cuda_pageable_memory_is_held_pinned_as_well(measured, pins, last):
    loader = replace(LOADER, pin_memory=pins, num_workers=2)
    _, (asked,) = measured(input=3, transfer=20, forward=77, loaders=(loader,), device_kind="cuda")
    assert asked["places"][-1] == last


def test_what_belongs_to_the_copies_is_measured_before_samples_are(measured):
    _, (asked,) = measured(input=30, transfer=20, forward=50, device_kind="cuda")
    assert asked["places"] == ["host", "device", "pinned", "sample", "raw"]


@pytest.mark.parametrize("known", [{}, {"num_batches": 0, "epochs_started": 1}])
def test_a_stream_has_no_samples_that_could_be_held(measured, known):
    ceilings, (asked,) = measured(input=50, forward=50, loaders=(replace(LOADER, iterable_style=True, **known),))
    assert asked["places"] == ["host"]
    assert names(ceilings) == [HELD_INPUT, LOADER_ALONE]


def test_samples_of_workers_are_held_and_what_lies_ready_is_left_out(measured):
    loader = replace(LOADER, num_workers=2, prefetch_factor=2, start_method="fork")
    ceilings, (asked,) = measured(input=20, forward=80, loaders=(loader,))
    assert names(ceilings) == [HELD_INPUT, HELD_SAMPLES, HELD_RAW, LOADER_ALONE]
    assert (asked["pace"].skip, asked["drain"]) == (2 + 4, 4 * 5 - 4)  # 4 lie ready; each step lasts 0.8 of a batch
    assert measured(input=20, forward=80)[1][0]["drain"] == 0


def test_what_workers_have_ready_may_last_too_long_for_all_places_or_any(measured):
    loader = replace(LOADER, num_workers=4, prefetch_factor=2, start_method="fork")
    _, (asked,) = measured(input=30, forward=70, loaders=(loader,), max_s=30.0)
    assert asked["places"] == ["host"]
    assert measured(input=10, forward=90, loaders=(replace(loader, num_workers=8),), max_s=30.0) == ((), [])


@pytest.mark.parametrize(
    ("change", "held"),
    [
        ({"start_method": "fork"}, True),
        ({"start_method": "spawn"}, False),
        ({"start_method": ""}, False),
        ({"start_method": "fork", "num_batches": 39}, False),  # each epoch, each worker would hold them anew
        ({"start_method": "fork", "num_batches": 39, "persistent_workers": True}, True),
    ],
)
def test_samples_are_held_in_workers_that_follow_and_last(measured, change, held):
    loaders = (replace(LOADER, num_workers=4, **change),)
    _, (asked,) = measured(input=50, forward=50, loaders=loaders)
    assert asked["places"] == (["host", "sample", "raw"] if held else ["host"])


def test_where_the_loader_says_nothing_the_start_method_is_that_of_the_process(measured):
    loaders = (replace(LOADER, num_workers=2),)
    for start_method, held in (("fork", ["sample", "raw"]), ("forkserver", [])):
        _, (asked,) = measured(input=50, forward=50, loaders=loaders, start_method=start_method)
        assert asked["places"] == ["host", *held]


def test_a_place_that_there_is_not_is_left_out(measured):
    assert HELD_RAW not in names(measured(input=50, forward=50, missing=("raw",))[0])


@pytest.mark.parametrize(
    "options",
    [
        {"input": 1, "forward": 99},
        {"input": 50, "forward": 50, "loaders": ()},
        {"input": 50, "forward": 50, "loaders": (replace(LOADER, is_training=False),)},
        {"input": 50, "forward": 50, "loaders": (replace(LOADER, num_batches=0),)},
        {"input": 50, "forward": 50, "max_s": 0.5},
        {"input": 50, "forward": 50, "header": {"world_size": 2}},
    ],
)
def test_nothing_is_started_where_nothing_could_be_told(measured, options):
    assert measured(**options) == ((), [])


def test_where_the_time_is_short_the_places_that_tell_most_are_held(measured):
    _, (asked,) = measured(input=50, forward=50, max_s=10.0)
    assert asked["places"] == ["host"]
    assert asked["max_s"] + asked["alone_s"] == pytest.approx(10.0)
    assert asked["within_s"] == 90.0


def test_too_few_pairs_are_no_ceiling(measured):
    assert measured(input=50, forward=50, pairs=3)[0] == ()


def test_batches_that_wait_ready_are_left_out_after_each_switch(measured):
    waiting = replace(LOADER, num_workers=3, prefetch_factor=4)
    _, asked = measured(input=50, forward=50, loaders=(waiting,))
    assert asked[0]["pace"].skip == 14
