"""What a sample's value is, and many of them as one tensor."""

import numpy as np
import pytest
import torch
from PIL import Image
from tests.unit.pipeline.compile.kernels.samples import FORMS, SIZES, Tv, same, samples
from torch.utils.data import default_collate

from flatout.pipeline.compile.sample_form import SampleForm, pack, unpack


@pytest.mark.parametrize("kind", [*FORMS, "Video"])
def test_values_come_back_to_the_last_bit(kind):
    for size in SIZES:
        values = samples(kind, size)
        form, batch = pack(values)
        assert len(batch) == len(values)
        assert all(same(value, unpack(form, row)) for value, row in zip(values, batch, strict=True))
        if form.kind != "image":
            assert batch.stride() == default_collate(values).stride()


def test_forms_are_named_after_what_the_values_are():
    forms = {kind: pack(samples(kind))[0] for kind in FORMS}
    assert forms["L"] == SampleForm("image", "L")
    assert forms["RGB"] == SampleForm("image", "RGB")
    assert forms["uint8"] == forms["float"] == SampleForm("tensor")
    assert forms["Image"] == SampleForm("tensor", "Image")
    assert forms["array"] == forms["array2"] == SampleForm("array")


def test_images_have_a_row_of_bytes_each():
    assert pack(samples("L", (7, 5)))[1].shape == (4, 7, 5)
    assert pack(samples("RGB", (7, 5)))[1].shape == (4, 7, 5, 3)
    assert pack(samples("RGB"))[1].dtype is torch.uint8


def test_neither_side_sees_what_is_written_to_the_other():
    for kind in FORMS:
        values = samples(kind)
        form, batch = pack(values)
        before = batch.clone()
        for value in [unpack(form, row) for row in batch] + [v for v in values if not isinstance(v, Image.Image)]:
            if isinstance(value, Image.Image):
                value.paste(9, (0, 0, 2, 2)) if value.mode == "L" else value.putpixel((0, 0), (9, 9, 9))
            else:
                value[...] = 1
        assert torch.equal(batch, before)


def refused():
    image = Image.new("RGB", (4, 3))
    clear = Image.new("L", (4, 3))
    clear.info["transparency"] = 3
    yield from ([image, Image.new("RGB", (3, 4))], [image, Image.new("L", (4, 3))], [image, torch.zeros(3)])
    yield from ([clear], [Image.new("P", (4, 3))], [Image.new("RGBA", (4, 3))], [Image.new("1", (4, 3))], [])
    yield from ([torch.zeros(3), torch.zeros(4)], [torch.zeros(3), torch.zeros(3).double()], [3, 4], ["a"], [None])
    yield from ([torch.zeros(3).to_sparse()], [torch.zeros(3, requires_grad=True)], [torch.nn.Parameter(torch.ones(2))])
    yield from ([np.array(["a"])], [np.array([None])], [np.zeros(3, ">f4")], [np.zeros(3), np.zeros(3, np.float32)])
    yield from ([np.float32(3)], [np.matrix([[1]])], [Tv.Mask(torch.zeros(3, 3))], [{"a": 1}], [(torch.zeros(2),)])


@pytest.mark.filterwarnings("ignore:the matrix subclass")
def test_values_of_no_one_known_form_are_refused():
    for values in refused():
        assert pack(values) is None, values


def test_arrays_in_any_order_of_memory_are_taken():
    rng = np.random.default_rng(0)
    whole = rng.random((6, 5, 4))
    readonly = whole.copy()
    readonly.flags.writeable = False
    for make in (np.asfortranarray, lambda a: a[::-1], lambda a: a[:, ::2], lambda a: readonly[0], lambda a: a.T):
        values = [make(whole[i]) for i in range(3)]
        form, batch = pack(values)
        assert all(np.array_equal(value, unpack(form, row)) for value, row in zip(values, batch, strict=True))
