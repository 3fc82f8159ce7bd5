"""The size of an image after `Resize`, by torchvision's own arithmetic.

Modules: flatout.pipeline.compile.kernels.resized_crop.
"""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.unit.pipeline.compile.kernels.samples import T

from flatout.pipeline.compile.kernels.core.kernel import Unsuited
from flatout.pipeline.compile.kernels.resize import resize, resized
from flatout.pipeline.compile.kernels.resized_crop import _box, _central
from flatout.pipeline.compile.sample_form import SampleForm

SIDES = st.integers(1, 60)


def torchvisions(before, size, max_size):
    return tuple(T.functional.resize(torch.empty(1, *before), size, max_size=max_size, antialias=True).shape[1:])


@settings(max_examples=examples(60))
@given(before=st.tuples(SIDES, SIDES), size=SIDES, more=st.none() | st.integers(1, 40))
def test_one_number_is_the_shorter_side(before, size, more):
    max_size = None if more is None else size + more
    found = resized(before, size, max_size)
    if 0 in found:
        return  # torchvision asks Pillow for no pixels, and fails
    assert found == torchvisions(before, [size], max_size)
    assert resized(before, [size], max_size) == found


def test_two_numbers_are_height_and_width():
    assert resized((7, 5), (3, 9), None) == (3, 9)
    with pytest.raises(Unsuited, match="for a size of one number"):
        resized((7, 5), (3, 9), 12)


@pytest.mark.parametrize("before", [(7, 5), (5, 7), (6, 6)])
def test_only_a_longest_side_may_be_given(before):
    height, width = resized(before, None, 12)
    assert max(height, width) == 12
    assert (height > width) == (before[0] > before[1])


def test_a_longest_side_below_the_size_is_refused():
    with pytest.raises(Unsuited, match="max_size 3 is not above the size 3"):
        resized((7, 5), 3, 3)


@pytest.mark.parametrize(
    ("operation", "form", "known"),
    [
        (T.Resize(3), SampleForm("image", "RGB"), True),
        (T.Resize(3), SampleForm("tensor"), True),
        (T.Resize(3, antialias=False), SampleForm("image", "RGB"), False),
        (T.Resize(3), SampleForm("array"), False),
    ],
)
def test_what_has_a_kernel(operation, form, known):
    assert (resize(operation, form) is not None) is known


@pytest.mark.parametrize(
    ("size", "ratio", "window"),
    [((10, 40), (0.75, 4 / 3), (10, 13)), ((40, 10), (0.75, 4 / 3), (13, 10)), ((10, 11), (0.75, 4 / 3), (10, 11))],
)
def test_a_window_in_the_middle_is_taken_where_no_random_one_fits(size, ratio, window):
    assert _central(*size, ratio) == window
    crop = T.RandomResizedCrop(3, scale=(9.0, 9.0), ratio=ratio)
    drawn = _box(*size, crop, torch.Generator())
    assert (drawn["height"], drawn["width"]) == window
    assert (drawn["top"], drawn["left"]) == ((size[0] - window[0]) // 2, (size[1] - window[1]) // 2)
