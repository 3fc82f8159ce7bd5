"""Facts about the training loader that several rules ask for."""

import pytest

from flatout.rules import example, line
from flatout.rules.core.sentence import at, of_loop, of_step
from flatout.rules.facts.loader_facts import (
    batch_s,
    cpu_share,
    per_sample_s,
    picks_rows,
    samples_per_batch,
    training_loader,
    waits_s,
)
from flatout.schema.phase import Phase
from flatout.schema.run import Frame, LoaderFacts, SamplePrefix


def test_the_training_loader_is_the_one_that_most_time_goes_to():
    small = LoaderFacts(name="small", is_training=True, sample_s=0.01, fetches=10)
    large = LoaderFacts(name="large", is_training=True, sample_s=0.1, fetches=10)
    other = LoaderFacts(name="validation", sample_s=9.0, fetches=10)
    assert training_loader(example(loaders=(small, other, large)).run) is large
    assert training_loader(example(loaders=(other,)).run) is None  # 10 batches in 100 steps: it does not feed them
    fed = LoaderFacts(name="unknown", sample_s=9.0, fetches=100)
    assert training_loader(example(loaders=(fed,)).run) is fed
    by_hand = line(1.0, ("train.py", 9, "batches"), stage="generator")
    assert training_loader(example(loaders=(fed,), lines=(by_hand,)).run) is None
    assert training_loader(example(loaders=(other, other)).run) is None
    assert training_loader(example().run) is None


def test_the_size_of_a_batch_comes_from_whatever_tells_it():
    run = example(samples_per_step=32.0).run
    assert samples_per_batch(run, LoaderFacts(batch_size=64)) == 64
    assert samples_per_batch(run, LoaderFacts(num_samples=100, num_batches=4)) == 25
    assert samples_per_batch(run, LoaderFacts()) == 32
    assert per_sample_s(example().run, LoaderFacts(sample_s=1.0)) == 0.0


def test_what_was_not_measured_counts_as_work():
    assert cpu_share(LoaderFacts()) == 1.0
    assert cpu_share(LoaderFacts(sample_s=0.1, sample_cpu_s=0.02)) == pytest.approx(0.2)
    assert batch_s(LoaderFacts(sample_s=0.1, collate_s=0.02, sampler_s=0.01)) == pytest.approx(0.13)


def test_waiting_for_a_core_is_no_part_of_a_sample():
    queued = LoaderFacts(sample_s=0.3, sample_cpu_s=0.02, sample_queued_s=0.2)
    assert cpu_share(queued) == pytest.approx(0.2)
    assert waits_s(queued) == pytest.approx(0.08)
    assert waits_s(LoaderFacts(sample_s=0.1, sample_cpu_s=0.02, sample_queued_s=0.2)) == 0.0


def test_cheap_samples_of_an_array_in_memory_are_rows():
    run = example().run
    rows = LoaderFacts(batch_size=64, sample_s=0.001, in_memory_bytes=1)
    assert picks_rows(run, rows)
    assert picks_rows(run, LoaderFacts(batch_size=64, sample_s=0.001, prefix=SamplePrefix(shares_memory=True)))
    assert not picks_rows(run, LoaderFacts(batch_size=64, sample_s=0.1, in_memory_bytes=1))
    assert not picks_rows(run, LoaderFacts(batch_size=64, sample_s=0.001))


def test_shares_are_told_with_the_numbers_they_are_made_of():
    breakdown = example(step_ms=99.7, n=180, input=61.8, outside_s={Phase.VALIDATION: 6}).breakdown
    assert of_step(breakdown, 61.8) == "62% of each step (61.8 ms of 99.7 ms, n=180)"
    assert of_loop(breakdown, 6.0, 3) == "25% of the recorded loop (6.00 s of 23.9 s, n=3)"


def test_a_place_is_told_by_function_and_line():
    assert at(Frame("/home/me/train.py", 34, "Resize.__call__")) == "`Resize.__call__` (train.py:34)"
    assert at(Frame("/home/me/train.py", 34, "<module>")) == "train.py:34"
    assert at(None) == ""
