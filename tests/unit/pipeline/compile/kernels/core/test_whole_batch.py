"""Operations that take a batch of tensors as they take one."""

import pytest
import torch

from flatout.pipeline.compile.kernels.core.kernel import Unsuited
from flatout.pipeline.compile.kernels.core.whole_batch import whole
from flatout.pipeline.compile.sample_form import SampleForm


class Turned:
    def __call__(self, value):
        return value.transpose(-1, -2)


KERNEL = whole(Turned(), SampleForm("tensor"))


def test_all_images_are_given_at_once_and_lie_as_stacked_ones():
    batch = torch.rand(2, 3, 4, 5)
    made = KERNEL.run(batch)
    assert torch.equal(made, torch.stack([Turned()(row) for row in batch]))
    assert made.is_contiguous()
    assert KERNEL.name == "Turned"


@pytest.mark.parametrize(
    ("shape", "reason"),
    [((2, 4, 5), "for 2 axes"), ((2, 1, 3, 4, 5), "for 4 axes"), ((0, 3, 4, 5), "an empty batch")],
)
def test_samples_without_channels_videos_and_empty_batches_are_refused(shape, reason):
    with pytest.raises(Unsuited, match=reason):
        KERNEL.run(torch.empty(shape))
