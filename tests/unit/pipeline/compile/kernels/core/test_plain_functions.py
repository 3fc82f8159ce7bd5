"""Functions of torch and numpy that scripts put into a chain as they are."""

import numpy as np
import pytest
import torch

from flatout.pipeline.compile.kernels.core.plain_functions import function_kernel
from flatout.pipeline.compile.sample_form import SampleForm

TENSOR, ARRAY, IMAGE = SampleForm("tensor"), SampleForm("array"), SampleForm("image", "L")
BATCH = torch.arange(24).reshape(2, 3, 4)


@pytest.mark.parametrize(
    ("operation", "form", "after"),
    [
        (torch.flatten, TENSOR, TENSOR),
        (torch.Tensor.float, TENSOR, TENSOR),
        (torch.from_numpy, ARRAY, TENSOR),
        (torch.as_tensor, ARRAY, TENSOR),
        (torch.tensor, ARRAY, TENSOR),
        (torch.as_tensor, TENSOR, TENSOR),
        (np.asarray, IMAGE, ARRAY),
        (np.array, ARRAY, ARRAY),
    ],
)
def test_a_known_function_gives_what_it_gives_to_each_row(operation, form, after):
    kernel = function_kernel(operation, form)
    assert kernel.after == after
    made = kernel.run(BATCH)
    if form == TENSOR:
        assert torch.equal(made, torch.stack([operation(row) for row in BATCH]))
    else:
        assert torch.equal(made, BATCH)
    if kernel.run_into is not None:
        out = torch.empty_like(made)
        kernel.run_into(BATCH, out)
        assert torch.equal(out, made)
    if kernel.view is not None:
        assert torch.equal(kernel.view(BATCH), made)


@pytest.mark.parametrize(
    ("operation", "form"),
    [
        (torch.flatten, ARRAY),
        (torch.tensor, TENSOR),  # torch would warn
        (torch.from_numpy, TENSOR),
        (torch.as_tensor, SampleForm("tensor", "Image")),
        (torch.Tensor.double, TENSOR),
        (lambda x: x, TENSOR),
    ],
)
def test_any_other_is_none(operation, form):
    assert function_kernel(operation, form) is None
