"""Random streams: states that are read, written, compared, counted between and moved on, none of which is drawn."""

import random

import numpy
import pytest
import torch

from flatout.torch_loader.predicted.random_streams import StreamSet, at_one_place, stream_of, unpredictable

KINDS = {
    "random": (lambda: random.Random(3), lambda one: [one.random(), one.getrandbits(64)]),
    "RandomState": (lambda: numpy.random.RandomState(3), lambda one: [one.rand(), one.bytes(12)]),
    "PCG64": (lambda: numpy.random.default_rng(3), lambda one: [one.random(), one.random()]),
    "PCG64DXSM": (
        lambda: numpy.random.Generator(numpy.random.PCG64DXSM(3)),
        lambda one: [one.random(), one.random(4).tolist()],
    ),
    "MT19937": (lambda: numpy.random.Generator(numpy.random.MT19937(3)), lambda one: [one.random(), one.bytes(4)]),
    "torch": (
        lambda: torch.Generator().manual_seed(3),
        lambda one: [float(torch.rand((), generator=one)), torch.randperm(9, generator=one).tolist()],
    ),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("times", [1, 7, 700])
def test_a_state_is_predicted_by_the_words_that_were_counted(kind, times):
    make, draw = KINDS[kind]
    generator = make()
    stream = stream_of(generator)
    states = [stream.read()]
    for _ in range(3):
        for _ in range(times):
            draw(generator)
        states.append(stream.read())
    words = stream.words(states[0], states[1])
    assert words
    assert stream.words(states[1], states[2]) == words
    assert stream.residue(states[0], states[1]) == stream.residue(states[2], states[3])
    predicted = stream.advanced(states[1], words)
    assert predicted.mark == states[2].mark
    assert stream.read() == states[3]  # nothing of all that has moved it
    stream.write(predicted)
    first = draw(generator)
    stream.write(states[2])
    assert draw(generator) == first


@pytest.mark.parametrize(
    ("make", "draw"),
    [
        (lambda: random.Random(3), lambda one: one.gauss(0, 1)),
        (lambda: numpy.random.RandomState(3), lambda one: one.randn()),
        (lambda: numpy.random.default_rng(3), lambda one: int(one.integers(0, 9))),
        (
            lambda: torch.Generator().manual_seed(3),
            lambda one: float(torch.randn(1, dtype=torch.float64, generator=one)),
        ),
    ],
)
def test_what_a_generator_keeps_of_a_draw_belongs_to_its_state(make, draw):
    generator = make()
    stream = stream_of(generator)
    before = stream.read()
    draw(generator)
    kept = stream.read()
    second = draw(generator)
    assert stream.words(before, kept) is None  # no number of words alone leads there
    assert stream.residue(before, kept) is None
    stream.write(kept)
    assert draw(generator) == second


def test_a_second_normal_number_that_is_taken_without_a_word_is_seen():
    state = numpy.random.RandomState(3)
    state.randn()
    stream = stream_of(state)
    before = stream.read()
    state.randn()
    assert stream.read() != before
    assert stream.read().mark[0] == before.mark[0]


def test_other_generators_are_followed_and_counted_only_where_nothing_was_drawn():
    generator = numpy.random.Generator(numpy.random.SFC64(1))
    stream = stream_of(generator)
    before = stream.read()
    assert stream.words(before, stream.read()) == 0
    drawn = generator.random()
    assert stream.words(before, stream.read()) is None
    stream.write(before)
    assert generator.random() == drawn


def test_a_set_has_the_streams_of_the_process_and_each_generator_once():
    own = random.Random(1)
    streams = StreamSet([own, own, torch.default_generator])
    before = streams.read()
    assert len(before) == 4
    own.random()
    random.random()
    torch.rand(3)
    numpy.random.rand()
    after = streams.read()
    assert streams.words(before, after) == (2, 3, 2, 2)
    assert at_one_place(streams.advanced(before, (2, 3, 2, 2)), after)
    streams.write(before, after)
    assert streams.read() == before


def test_what_is_spent_stays_as_this_process_has_it():
    rng = numpy.random.default_rng(3)
    streams = StreamSet([rng])
    rng.integers(0, 9)
    rng.integers(0, 9)
    here = streams.read()
    there = tuple(state._replace(spent=7 if state.spent is not None else None) for state in here)
    assert streams.settled(here, there, there) == here


def test_generators_that_no_process_shares_are_named():
    assert unpredictable([random.Random(1)]) == ""
    assert "system" in unpredictable([random.SystemRandom()])
