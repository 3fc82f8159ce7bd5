"""What stands in lists and arrays is one number, which another one stands for where something was written."""

import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flatout.native import content, multi_batch, native
from flatout.native.content import content_of

MANY = content._EXACT_BYTES + 4096


@given(st.integers(1, 40), st.integers(1, 70), st.integers(1, 4), st.integers(0, 7))
def test_sums_of_blocks_are_those_of_numpy(number, words, step, shift):
    memory = np.random.default_rng(number).integers(0, 256, 8 * words * number * step + shift, dtype=np.uint8)
    blocks = memory[shift:].view(np.uint64).reshape(number * step, words)[::step]
    assert np.array_equal(content._sums(blocks, np), np.add.reduce(blocks, axis=1))


@pytest.mark.skipif(not native.available(), reason="flatout was installed without a C compiler")
@pytest.mark.parametrize("level", range(4))
@pytest.mark.parametrize("elsewhere", [False, True])
def test_compiled_sums_are_made_on_all_threads_wherever_they_are_asked_for(two_threads, level, elsewhere):
    blocks = np.random.default_rng(level).integers(0, 2**64, (700, 1024), dtype=np.uint64)
    sums, made = np.zeros(700, dtype=np.uint64), []

    def ask():
        made.append(multi_batch.summed(blocks, sums))

    native.compiled.use(level)
    try:
        thread = threading.Thread(target=ask)
        (thread.start(), thread.join()) if elsewhere else ask()
    finally:
        native.compiled.use(3)
    assert made == [True] and np.array_equal(sums, np.add.reduce(blocks, axis=1))


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("place", [0, 8191, 8192, MANY - 1])
def test_one_byte_that_is_written_makes_another_number(monkeypatch, compiled, place):
    if not compiled:
        monkeypatch.setattr(multi_batch, "compiled", None)
    array = np.random.default_rng(1).integers(0, 256, MANY, dtype=np.uint8)
    before = content_of(array)
    array[place] ^= 1
    assert content_of(array) != before
    array[place] ^= 1
    assert content_of(array) == before


def test_with_and_without_compiled_code_the_number_is_the_same(monkeypatch):
    array = np.random.default_rng(2).standard_normal((1300, 1000))
    assert array.nbytes > content._EXACT_BYTES
    before = content_of(array)
    monkeypatch.setattr(multi_batch, "compiled", None)
    assert content_of(array) == before


def test_of_what_is_very_large_blocks_spread_over_it_count(monkeypatch):
    monkeypatch.setattr(content, "_WHOLE_BYTES", 4 * content._EXACT_BYTES)
    array = np.zeros(9 * content._EXACT_BYTES, dtype=np.uint8)
    before = content_of(array)
    array[0] = 1
    assert content_of(array) != before
