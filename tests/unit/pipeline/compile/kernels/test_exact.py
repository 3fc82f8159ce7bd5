"""Random kernels against the originals run sample by sample: the same numbers drawn, the same bits, the stream left
at the same place.

Modules: flatout.pipeline.compile.kernels.blur, flatout.pipeline.compile.kernels.erasing,
flatout.pipeline.compile.kernels.flips, flatout.pipeline.compile.kernels.gray,
flatout.pipeline.compile.kernels.mixture, flatout.pipeline.compile.kernels.noise,
flatout.pipeline.compile.kernels.random_crop, flatout.pipeline.compile.kernels.rotation,
flatout.pipeline.compile.kernels.core.per_sample.
"""

import copy

import pytest
import torch
from tests.unit.pipeline.compile.kernels.samples import T, agree, samples, v2

from flatout.pipeline.compile.kernels.core.kernel import RandomKernel, Unsuited
from flatout.pipeline.compile.registry import kernel_for
from flatout.pipeline.compile.rng import happens
from flatout.pipeline.compile.sample_form import SampleForm, pack

pytestmark = pytest.mark.slow

SEEDS = 8
BOTH = pytest.mark.parametrize("generation", [T, v2], ids=["v1", "v2"])
FORMS = ("L", "RGB", "uint8", "float", "Image")
MODES = ("constant", "edge", "reflect", "symmetric")
SIZES = ((7, 5), (8, 8), (20, 31))


def exact(operation, values, seeds=SEEDS) -> RandomKernel:
    """Fail unless the kernel, with what it draws, gives what the original gives from the same stream."""
    form, batch = pack(values)
    kernel = kernel_for(operation, form)
    assert isinstance(kernel, RandomKernel), f"no random kernel for {operation} on {form}"
    assert kernel.exact
    for seed in range(seeds):
        torch.manual_seed(seed)
        wanted = [operation(copy.copy(value)) for value in values]
        left = torch.get_rng_state()
        torch.manual_seed(seed)
        stream = torch.Generator().manual_seed(seed) if seed % 2 else None
        made = kernel.run(batch, kernel.draw(len(batch), tuple(batch.shape), stream))
        assert torch.equal(torch.get_rng_state() if stream is None else stream.get_state(), left)
        agree(kernel.after, made, wanted)
        assert tuple(made.shape) == kernel.shape_after(tuple(batch.shape))
    return kernel


def every(kinds=FORMS, sizes=SIZES, num=3):
    """Yield samples of every form and size; v1 has no kernels for the classes of v2."""
    for kind in kinds:
        for number, size in enumerate(sizes):
            yield kind, size, samples(kind, size, num=num, seed=number)


def kinds(generation):
    return FORMS[:-1] if generation is T else FORMS


@BOTH
@pytest.mark.parametrize("p", [0.0, 0.3, 1.0])
@pytest.mark.few(3)
def test_flips_and_gray(generation, p):
    for _, _, values in every(kinds(generation)):
        exact(generation.RandomHorizontalFlip(p), values)
        exact(generation.RandomVerticalFlip(p), values)
        exact(generation.RandomGrayscale(p), values)


@BOTH
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.few(3)
def test_random_crop(generation, mode):
    for kind, (tall, wide), values in every(kinds(generation), SIZES[:2]):
        for size, options in (
            ((tall, wide), {"padding": 2, "fill": 3}),
            ((tall, 4), {"padding": (3, 0)}),
            ((5, 3), {"padding": [1, 2, 0, 3]}),
        ):
            exact(generation.RandomCrop(size, padding_mode=mode, **options), values, seeds=4)
        if mode in ("constant", "edge") or kind in ("L", "RGB"):  # torch cannot mirror more than there is
            for size in ((tall + 3, wide), (tall + 1, wide + 2), (tall + 2, 3)):
                for padding in (None, 1):
                    operation = generation.RandomCrop(size, padding, pad_if_needed=True, padding_mode=mode)
                    exact(operation, values, seeds=3)


@BOTH
def test_random_crop_without_padding(generation):
    for _, (tall, wide), values in every(kinds(generation), SIZES[:2]):
        for size in ((tall, wide), (tall, wide - 2), (tall - 1, wide), 4):
            exact(generation.RandomCrop(size), values)


@BOTH
@pytest.mark.parametrize(
    "options",
    [{}, {"scale": (0.9, 1.5)}, {"scale": (0.5, 1), "ratio": (1, 1)}, {"ratio": (4.0, 5.0)}, {"ratio": (0.1, 0.2)}],
)
@pytest.mark.few(7)
def test_random_resized_crop(generation, options):
    for _, _, values in every(kinds(generation)):
        exact(generation.RandomResizedCrop((6, 9), **options), values)


@BOTH
@pytest.mark.parametrize("mode", ["nearest", "bicubic"])
def test_random_resized_crop_in_other_modes(generation, mode):
    for _, _, values in every(kinds(generation)):
        exact(generation.RandomResizedCrop(7, interpolation=T.InterpolationMode(mode)), values, seeds=5)


@BOTH
@pytest.mark.parametrize(
    "strengths",
    [(0.4, 0.4, 0.4, 0.1), (0.9, 0, 0, 0), (0, 2.0, 0, 0), (0, 0, 3.0, 0), (0, 0, 0, 0.5), (0.2, (0.5, 2), 0, 0), ()],
)
@pytest.mark.few(13)
def test_colour_jitter(generation, strengths):
    for _, _, values in every(("L", "RGB"), num=12):
        exact(generation.ColorJitter(*strengths), values)


@BOTH
@pytest.mark.parametrize("value", [0, 3.5, (1, 2, 3), "random"])
@pytest.mark.parametrize("options", [{"p": 0.5}, {"p": 1.0, "scale": (0.5, 1.0)}, {"p": 0.9, "ratio": (1, 1)}])
@pytest.mark.few(18)
def test_random_erasing(generation, value, options):
    for _, _, values in every(("float",) if value == "random" else kinds(generation)[2:]):
        exact(generation.RandomErasing(value=value, **options), values)


def test_random_pixels_in_bytes_are_unsuited():
    form, batch = pack(samples("uint8", (20, 31)))
    kernel = kernel_for(T.RandomErasing(1.0, value="random"), form)
    with pytest.raises(Unsuited, match="below zero"):
        kernel.run(batch, kernel.draw(len(batch), tuple(batch.shape)))


def inner(generation):
    return [
        [generation.RandomHorizontalFlip()],
        [generation.ColorJitter(0.4, 0.4, 0.4, 0.1), generation.RandomGrayscale(0.3)],
        [generation.Pad(2), generation.RandomCrop(8)],
        [generation.RandomApply([generation.RandomVerticalFlip(), generation.RandomRotation(10)], p=0.5)],
    ]


@BOTH
@pytest.mark.parametrize("p", [0.0, 0.4, 1.0])
def test_random_apply(generation, p):
    for kind in ("L", "RGB"):
        for transforms in inner(generation):
            exact(generation.RandomApply(transforms, p), samples(kind, (8, 8), num=6))


@pytest.mark.parametrize("p", [None, [1, 2, 3, 4], [0.1, 0.0, 0.9, 0.0]])
def test_random_choice_and_order_of_v2(p):
    for kind in ("L", "RGB"):
        transforms = [v2.Compose(each) for each in inner(v2)]
        exact(v2.RandomChoice(transforms, p), samples(kind, (8, 8), num=9))
        exact(v2.RandomOrder(transforms), samples(kind, (8, 8), num=9))


def test_what_draws_from_elsewhere_is_not_exact():
    form, _ = pack(samples("RGB", (8, 8)))
    choice = T.RandomChoice([T.RandomHorizontalFlip(), T.RandomVerticalFlip()])
    assert not kernel_for(choice, form).exact
    assert not kernel_for(T.RandomApply([choice]), form).exact
    assert kernel_for(T.RandomOrder([T.RandomHorizontalFlip()]), form) is None
    assert not kernel_for(v2.GaussianNoise(), SampleForm("tensor")).exact


@BOTH
@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
@pytest.mark.few(2)
def test_rotation_and_affine(generation, mode):
    more = {"interpolation": T.InterpolationMode(mode)}
    for _, _, values in every(kinds(generation), SIZES[:3], num=3):
        exact(generation.RandomRotation(40, fill=7, **more), values, 5)
        exact(generation.RandomRotation((10, 80), center=(2, 3), **more), values, 5)
        exact(generation.RandomAffine(30, (0.2, 0.3), (0.5, 2), 10, fill=7, **more), values, 5)
        exact(generation.RandomAffine(0, shear=(-5, 5, 10, 20), **more), values, 5)
        exact(generation.RandomAffine((3, 9), translate=(0.5, 0.0), **more), values, 5)


@BOTH
def test_gaussian_blur(generation):
    for _, _, values in every(kinds(generation), num=3):
        exact(generation.GaussianBlur(3), values, 5)
        exact(generation.GaussianBlur((5, 3), (0.5, 0.5)), values, 5)


@BOTH
def test_numbers_are_drawn_in_the_default_type(generation):
    values = samples("RGB", (20, 31))
    torch.set_default_dtype(torch.float64)
    try:
        for name, *options in (("RandomHorizontalFlip", 0.7), ("RandomResizedCrop", 5), ("ColorJitter", 0.4)):
            exact(getattr(generation, name)(*options), values)
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("p", [0.1, 0.3, 0.7, 1 / 3])
def test_a_probability_is_compared_as_torch_compares_it(p):
    for seed in range(200):
        one, two = (torch.Generator().manual_seed(seed) for _ in range(2))
        assert happens(p, one) == bool(torch.rand(1, generator=two) < p)


class OwnFlip(T.RandomHorizontalFlip):
    """A class of the script's own."""


class OwnCrop(v2.RandomCrop):
    """A class of the script's own."""

    def make_params(self, flat_inputs):
        return super().make_params(flat_inputs) | {"top": 0}


def changed(operation, **attributes):
    vars(operation).update(attributes)
    return operation


@pytest.mark.parametrize(
    "operation",
    [
        OwnFlip(),
        OwnCrop(4),
        changed(T.RandomHorizontalFlip(), again=True),
        changed(T.RandomHorizontalFlip(), forward=lambda image: image),
        changed(v2.ColorJitter(0.4), make_params=lambda flat: {}),
        T.RandomApply([OwnFlip()]),
        v2.RandomOrder([v2.RandomHorizontalFlip(), OwnFlip()]),
    ],
    ids=repr,
)
def test_what_is_not_torchvisions_own_has_no_kernel(operation):
    for kind in ("RGB", "uint8"):
        form, _ = pack(samples(kind, (8, 8)))
        assert kernel_for(operation, form) is None


def test_a_changed_parameter_is_another_kernels():
    operation, values = T.RandomHorizontalFlip(0.2), samples("RGB", (8, 8))
    exact(operation, values)
    operation.p = 0.9
    exact(operation, values)
