"""Every deterministic kernel against the operation it stands for, sample by sample, to the last bit and stride.

Modules: flatout.pipeline.compile.kernels.convert, flatout.pipeline.compile.kernels.crop_and_pad,
flatout.pipeline.compile.kernels.normalize.
"""

import numpy as np
import pytest
import torch
from tests.unit.pipeline.compile.kernels.samples import SIZES, T, Tv, check, check_chain, samples, v2

from flatout.pipeline.compile.kernels.core.kernel import Unsuited
from flatout.pipeline.compile.kernels.core.resample import agrees
from flatout.pipeline.compile.registry import kernel_for
from flatout.pipeline.compile.sample_form import SampleForm, pack

pytestmark = pytest.mark.slow

BOTH = pytest.mark.parametrize("generation", [T, v2], ids=["v1", "v2"])
NORMALIZE = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", ["L", "RGB", "array", "array2", "floats"])
def test_to_tensor_gives_the_originals_fractions(kind, size):
    check(T.ToTensor(), samples(kind, size))


@pytest.mark.filterwarnings("ignore:The transform `ToTensor")
@pytest.mark.parametrize("kind", ["L", "RGB", "array", "uint8", "Image"])
def test_to_tensor_of_v2_lets_tensors_pass(kind):
    check(v2.ToTensor(), samples(kind))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", ["L", "RGB"])
@pytest.mark.parametrize("operation", [T.PILToTensor(), v2.PILToTensor(), v2.ToImage()])
def test_images_become_tensors_of_bytes(operation, kind, size):
    check(operation, samples(kind, size))


@pytest.mark.parametrize("kind", ["uint8", "float", "Image", "array", "array2", "floats"])
def test_to_image_takes_tensors_and_arrays(kind):
    check(v2.ToImage(), samples(kind))


@pytest.mark.parametrize("scale", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.uint8, torch.int16, torch.int32])
@pytest.mark.parametrize("kind", ["uint8", "Image", "float", "RGB", "array"])
@pytest.mark.few(7)
def test_to_dtype_converts_as_the_original(kind, dtype, scale):
    if kind == "float" and dtype is torch.int32 and scale:
        return  # torchvision refuses it
    check(v2.ToDtype(dtype, scale=scale), samples(kind))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.uint8, torch.int16])
@BOTH
@pytest.mark.parametrize("kind", ["uint8", "float"])
def test_convert_image_dtype_converts_as_the_original(kind, generation, dtype):
    check(generation.ConvertImageDtype(dtype), samples(kind))


@pytest.mark.parametrize("inplace", [True, False])
@BOTH
@pytest.mark.parametrize("size", SIZES)
def test_normalize_subtracts_and_divides_as_the_original(size, generation, inplace):
    operation = generation.Normalize(*NORMALIZE, inplace=inplace)
    values = samples("float", size)
    check(operation, [value.clone() for value in values]) if not inplace else check_inplace(operation, values)
    check(generation.Normalize((0.1307,), (0.3081,)), samples("gray", size))
    check(generation.Normalize([0.5], [0.25]), values)


def check_inplace(operation, values):
    _, batch = pack(values)
    kernel = kernel_for(operation, SampleForm("tensor"))
    wanted = torch.stack([operation(value.clone()) for value in values])
    before = batch.clone()
    assert torch.equal(kernel.run(batch), wanted)
    assert torch.equal(batch, before)


def test_normalize_of_bytes_or_with_other_moments_is_unsuited():
    kernel = kernel_for(T.Normalize(*NORMALIZE), SampleForm("tensor"))
    for batch in (torch.zeros(2, 3, 4, 4, dtype=torch.uint8), torch.zeros(2, 1, 4, 4), torch.zeros(2, 3, 4)):
        with pytest.raises(Unsuited):
            kernel.run(batch)


def settings_of_resize():
    for size, more in [(16, {}), ((9, 12), {}), ([40], {}), (7, {"max_size": 9})]:
        for mode in ("bilinear", "bicubic", "nearest"):
            yield size, {**more, "interpolation": T.InterpolationMode(mode)}


@BOTH
@pytest.mark.parametrize(("size", "more"), list(settings_of_resize()))
@pytest.mark.parametrize("kind", ["L", "RGB", "uint8", "float"])
@pytest.mark.few(14)
def test_resize_gives_the_bits_of_pillow_and_of_torch(kind, size, more, generation):
    for before in SIZES if "max_size" not in more else ((7, 5), (20, 31), (32, 32)):  # a side of 0 is an error
        check(generation.Resize(size, **more), samples(kind, before, num=3))


@pytest.mark.parametrize("mode", ["box", "hamming", "lanczos", "nearest-exact"])
@pytest.mark.parametrize("kind", ["L", "RGB"])
def test_resize_knows_pillows_other_filters(kind, mode):
    check(T.Resize((11, 4), interpolation=T.InterpolationMode(mode)), samples(kind, (20, 31)))
    check(v2.Resize((40, 64), interpolation=mode), samples(kind, (20, 31)))


def test_resize_of_v2_by_the_longer_side_only():
    for before in SIZES:
        check(v2.Resize(None, max_size=24), samples("RGB", before))


def test_torch_is_taken_only_for_sizes_for_which_every_pair_of_bytes_agrees():
    assert agrees(28, 32)
    assert agrees(16, 16)
    assert not agrees(48, 224)
    assert not agrees(64, 32)  # not tried: more than two pixels count
    assert not agrees(100, 2000)  # not tried: it would take too long


@pytest.mark.slow
@pytest.mark.parametrize("before", [28, 32, 48, 96, 256])
@pytest.mark.parametrize("kind", ["L", "RGB"])
@pytest.mark.few(7)
def test_resize_to_224_is_exact_whether_torch_is_or_not(kind, before):
    check(T.Resize(224), samples(kind, (before, before), num=5))


@BOTH
@pytest.mark.parametrize("size", [4, (3, 8), (32, 32), 40, (50, 5), 1])
@pytest.mark.parametrize("kind", ["L", "RGB", "uint8", "float"])
def test_center_crop_cuts_and_pads_as_the_original(kind, size, generation):
    for before in SIZES:
        check(generation.CenterCrop(size), samples(kind, before))


@BOTH
@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "symmetric"])
@pytest.mark.parametrize("padding", [2, (1, 3), [3, 0, 1, 2], 0])
@pytest.mark.parametrize("kind", ["L", "RGB", "uint8", "float"])
def test_pad_in_every_mode_as_the_original(kind, padding, mode, generation):
    for before in ((7, 5), (4, 9), (32, 32)):
        check(generation.Pad(padding, fill=7, padding_mode=mode), samples(kind, before))


def test_pad_of_images_goes_around_more_than_once():
    for mode in ("edge", "reflect", "symmetric"):
        for before in ((1, 1), (2, 3)):
            check(T.Pad((9, 8, 7, 11), padding_mode=mode), samples("RGB", before))
            check(T.Pad((9, 8, 7, 11), padding_mode=mode), samples("L", before))


def test_pad_fills_each_channel_with_its_own_byte():
    check(T.Pad(2, fill=(3, 200, 70)), samples("RGB"))
    check(v2.Pad(2, fill=(3, 200, 70)), samples("RGB"))
    check(v2.Pad(2, fill=(3.0, 200.0, 70.0)), samples("Image"))


@BOTH
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("kind", ["L", "RGB", "uint8", "float", "gray"])
def test_grayscale_weighs_the_colours_as_the_original(kind, channels, generation):
    for before in SIZES:
        check(generation.Grayscale(channels), samples(kind, before))


@pytest.mark.parametrize("kind", ["uint8", "float", "Image"])
def test_functions_of_torch_given_as_operations(kind):
    check(torch.flatten, samples(kind))
    check(torch.Tensor.float, samples(kind))


@pytest.mark.parametrize("function", [torch.from_numpy, torch.as_tensor, torch.tensor, np.asarray, np.array])
def test_functions_that_take_arrays(function):
    check(function, samples("array"))
    check(function, samples("floats"))


@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")  # said of what Pillow gives numpy
@pytest.mark.parametrize("kind", ["L", "RGB"])
def test_numpy_takes_images(kind):
    check(np.asarray, samples(kind))
    check(np.array, samples(kind))


@pytest.mark.parametrize(
    "operation",
    [
        v2.Resize((9, 40)),
        v2.Resize(6, interpolation="bicubic"),
        v2.CenterCrop(6),
        v2.CenterCrop((9, 2)),
        v2.Grayscale(3),
    ]
    + [v2.Pad((1, 2), padding_mode=mode) for mode in ("constant", "edge", "reflect", "symmetric")],
    ids=repr,
)
def test_classes_of_v2_are_kept(operation):
    for before in ((7, 5), (20, 31)):
        check(operation, samples("Image", before))
    with pytest.raises(Unsuited):
        kernel_for(operation, SampleForm("tensor", "Video")).run(torch.zeros(2, 3, 3, 8, 8))


def test_videos_are_done_where_they_lie_plainly_and_else_unsuited():
    plain = [Tv.Video(torch.rand(2, 3, 4, 5)) for _ in range(3)]
    check_chain([v2.ToDtype(torch.uint8, scale=True), v2.ToDtype(torch.float32)], plain)
    form, batch = pack(samples("Video"))
    with pytest.raises(Unsuited):
        kernel_for(v2.ToDtype(torch.float32), form).run(batch)


def chains():
    yield "RGB", [T.Resize(16), T.CenterCrop(12), T.ToTensor(), T.Normalize(*NORMALIZE)]
    yield "L", [T.Resize((9, 40)), T.ToTensor(), T.Normalize((0.1307,), (0.3081,))]
    yield "RGB", [T.PILToTensor(), T.ConvertImageDtype(torch.float32), T.Normalize(*NORMALIZE)]
    yield "RGB", [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(*NORMALIZE)]
    yield "RGB", [v2.PILToTensor(), v2.Resize((9, 11)), v2.ToDtype(torch.float32, scale=True)]
    yield "RGB", [v2.ToImage(), v2.Resize((40, 50)), v2.ToDtype(torch.float32, scale=True)]
    yield "RGB", [T.PILToTensor(), T.ConvertImageDtype(torch.float32), T.Resize((5, 64))]
    yield "RGB", [T.PILToTensor(), T.Resize((45, 64)), T.Grayscale()]
    yield "RGB", [np.asarray, T.ToTensor(), torch.flatten]
    yield "array", [torch.from_numpy, torch.Tensor.float, torch.flatten]


@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
@pytest.mark.parametrize(("kind", "operations"), list(chains()))
def test_chains_of_kernels_agree_after_every_step(kind, operations):
    for before in SIZES:
        check_chain(operations, samples(kind, before))


def unknown():
    class MyToTensor(T.ToTensor):
        pass

    hooked = T.Resize(4)
    hooked.register_forward_hook(lambda *_: None)
    extra = T.Normalize((0.5,), (0.5,))
    extra.gamma = 2
    replaced = T.CenterCrop(4)
    replaced.forward = lambda image: image
    yield from ((MyToTensor(), "RGB"), (hooked, "RGB"), (extra, "float"), (replaced, "RGB"))
    yield from ((T.Lambda(lambda x: x), "float"), (lambda x: x, "float"), (T.ToPILImage(), "float"))
    yield from ((T.ToTensor(), "float"), (T.PILToTensor(), "float"), (T.Normalize((0.5,), (0.5,)), "RGB"))
    yield from ((T.Resize(4, antialias=False), "RGB"), (v2.Pad(1, fill={Tv.Image: 3}), "Image"), (T.Pad(-1), "RGB"))
    yield from ((v2.ToDtype({Tv.Image: torch.float32}), "Image"), (T.Pad(1, fill=300), "RGB"), (3, "float"))
    yield from ((T.Resize(4), "Image"), (T.Normalize((0.5,), (0.5,)), "Image"))


@pytest.mark.parametrize(("operation", "kind"), list(unknown()))
def test_what_is_not_exactly_known_has_no_kernel(operation, kind):
    form, _ = pack(samples(kind))
    assert kernel_for(operation, form) is None
