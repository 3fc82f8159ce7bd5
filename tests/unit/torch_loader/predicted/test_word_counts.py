"""Words between two states of a generator, and the state that some words lead to."""

import numpy
import pytest

from flatout.torch_loader.predicted.word_counts import BLOCK, lcg_advanced, lcg_words, twister

PCG64 = 0x2360ED051FC65DA44385DF649FCCF645


def place_of(bits):
    state = bits.state["state"]
    return state["key"].tobytes(), int(state["pos"])


@pytest.mark.parametrize("words", [0, 1, 5, 623, 624, 625, 1248, 100_003])
def test_a_twister_counts_what_was_drawn_and_moves_as_the_generator_does(words):
    bits = numpy.random.MT19937(5)
    bits.random_raw(17)
    before = place_of(bits)
    bits.random_raw(words, output=False)
    assert twister().words(before, place_of(bits)) == words
    assert twister().advanced(*before, words) == place_of(bits)


def test_a_twister_of_another_seed_is_never_reached():
    one, other = numpy.random.MT19937(1), numpy.random.MT19937(2)
    one.random_raw(1)
    other.random_raw(1)
    assert twister().words(place_of(one), place_of(other)) is None


@pytest.mark.parametrize("words", [0, 1, 2, BLOCK, 12_345_678_901])
def test_a_congruence_counts_what_was_drawn_and_moves_as_the_generator_does(words):
    bits = numpy.random.PCG64(5)
    before = bits.state["state"]
    bits.advance(words)
    after = bits.state["state"]["state"]
    assert lcg_words(before["state"], after, before["inc"], PCG64) == words
    assert lcg_advanced(before["state"], before["inc"], PCG64, words) == after
