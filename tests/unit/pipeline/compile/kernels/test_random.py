"""Every random kernel against the operation it stands for, with the same parameters, to the last bit."""

import pytest
import torch
from tests.unit.pipeline.compile.kernels.samples import SIZES, T, check_random, samples, v2

from flatout.pipeline.compile.kernels.core.kernel import Unsuited
from flatout.pipeline.compile.registry import kernel_for
from flatout.pipeline.compile.sample_form import pack

pytestmark = pytest.mark.slow

BOTH = pytest.mark.parametrize("generation", [T, v2], ids=["v1", "v2"])
IMAGES = pytest.mark.parametrize("kind", ["L", "RGB"])
ALL = pytest.mark.parametrize("kind", ["L", "RGB", "uint8", "float"])


@BOTH
@ALL
def test_flips(kind, generation):
    for size in SIZES:
        for p in (0.0, 0.5, 1.0):
            check_random(generation.RandomHorizontalFlip(p), samples(kind, size, num=6))
            check_random(generation.RandomVerticalFlip(p), samples(kind, size, num=6))


@BOTH
@ALL
@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "symmetric"])
def test_random_crop_in_every_mode(kind, generation, mode):
    for size in ((8, 8), (7, 5), (20, 31)):
        values = samples(kind, size, num=6)
        check_random(generation.RandomCrop(4), values)
        check_random(generation.RandomCrop(size), values)
        check_random(generation.RandomCrop((5, 3), padding=2, padding_mode=mode, fill=9), values)
        check_random(generation.RandomCrop(4, padding=[1, 2, 0, 3], padding_mode=mode), values)
        if mode in ("constant", "edge") or kind in ("L", "RGB"):  # torch cannot mirror more than there is
            check_random(generation.RandomCrop((9, 12), pad_if_needed=True, padding_mode=mode), values)
            check_random(generation.RandomCrop((8, 8), padding=1, pad_if_needed=True, padding_mode=mode), values)


@IMAGES
def test_a_crop_larger_than_the_image_is_unsuited(kind):
    form, batch = pack(samples(kind, (7, 5)))
    with pytest.raises(Unsuited, match="larger"):
        kernel_for(T.RandomCrop(6), form).draw(4, tuple(batch.shape))


@BOTH
@ALL
@pytest.mark.parametrize("mode", ["bilinear", "bicubic", "nearest"])
def test_random_resized_crop_equals_crop_and_resize(kind, generation, mode):
    for size in ((8, 8), (1, 1), (20, 31), (40, 4)):
        for scale in ((0.08, 1.0), (0.9, 1.0)):
            operation = generation.RandomResizedCrop((9, 12), scale, interpolation=T.InterpolationMode(mode))
            check_random(operation, samples(kind, size, num=6))


@BOTH
@IMAGES
@pytest.mark.parametrize(
    "strengths",
    [(0.4, 0.4, 0.4, 0.1), (0.9, 0, 0, 0), (0, 2.0, 0, 0), (0, 0, 3.0, 0), (0, 0, 0, 0.5), (0.2, 0.2, 0, 0)],
)
def test_colour_jitter_changes_as_pillow_in_its_order(kind, strengths, generation):
    for seed, size in enumerate(SIZES):
        check_random(generation.ColorJitter(*strengths), samples(kind, size, num=12, seed=seed), seed)


@BOTH
@pytest.mark.parametrize("kind", ["L", "RGB", "uint8", "float", "gray"])
def test_random_grayscale(kind, generation):
    for size in SIZES:
        for p in (0.0, 0.5, 1.0):
            check_random(generation.RandomGrayscale(p), samples(kind, size, num=6))


@BOTH
@pytest.mark.parametrize("kind", ["uint8", "float"])
@pytest.mark.parametrize("value", [0, 3.5, (1, 2, 3), "random"])
def test_random_erasing_overwrites_one_window(kind, value, generation):
    for size in SIZES:
        if value != "random" or kind == "float":
            check_random(generation.RandomErasing(0.7, value=value), samples(kind, size, num=8))


@BOTH
@ALL
@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
def test_rotation_and_affine(kind, generation, mode):
    more = {"interpolation": T.InterpolationMode(mode), "fill": 7}
    for size in ((8, 8), (20, 31)):
        values = samples(kind, size)
        check_random(generation.RandomRotation(40, **more), values)
        check_random(generation.RandomRotation((10, 80), center=(2, 3), **more), values)
        check_random(generation.RandomAffine(30, (0.2, 0.3), (0.5, 2), 10, **more), values)
        check_random(generation.RandomAffine(0, shear=(-5, 5, 10, 20), **more), values)


@BOTH
@ALL
def test_gaussian_blur(kind, generation):
    check_random(generation.GaussianBlur(3), samples(kind, (20, 31)))
    check_random(generation.GaussianBlur((5, 3), (0.5, 0.5)), samples(kind, (9, 8)))


@pytest.mark.parametrize("kind", ["uint8", "float", "Image"])
def test_gaussian_noise_leaves_the_random_stream_alone(kind):
    torch.manual_seed(3)
    state = torch.get_rng_state()
    check_random(v2.GaussianNoise(0.1, 0.2), samples(kind))
    check_random(v2.GaussianNoise(clip=False), samples("float"))
    assert torch.equal(torch.get_rng_state(), state)


@BOTH
@ALL
def test_random_apply_and_choice_of_known_operations(kind, generation):
    apply = generation.RandomApply([generation.RandomHorizontalFlip(), generation.CenterCrop(8)], p=0.5)
    choice = generation.RandomChoice(
        [generation.RandomVerticalFlip(1.0), generation.RandomCrop(8, padding=1), apply], p=[0.2, 0.3, 0.5]
    )
    for size in ((8, 8), (8, 8)):
        check_random(apply, samples(kind, size, num=12))
        check_random(choice, samples(kind, size, num=20))


@pytest.mark.parametrize("operation", [v2.RandomHorizontalFlip(), v2.RandomErasing(1.0), v2.RandomCrop(4, padding=1)])
def test_classes_of_v2_are_kept(operation):
    check_random(operation, samples("Image"))


def test_apply_that_would_change_shape_or_form_has_no_kernel_or_is_unsuited():
    form, batch = pack(samples("RGB", (8, 8)))
    assert kernel_for(T.RandomApply([T.ToTensor()]), form) is None
    assert kernel_for(T.RandomApply([T.Lambda(lambda x: x)]), form) is None
    kernel = kernel_for(T.RandomApply([T.Resize(4)], p=1.0), form)
    with pytest.raises(Unsuited):
        kernel.run(batch, kernel.draw(4, tuple(batch.shape)))


def test_a_given_generator_alone_decides():
    form, batch = pack(samples("RGB", (8, 8), num=9))
    for operation in (T.RandomResizedCrop(5), T.ColorJitter(0.4, 0.4, 0.4, 0.1), T.RandomCrop(4), T.RandomAffine(9)):
        kernel = kernel_for(operation, form)
        state = torch.get_rng_state()
        one, two = (kernel.draw(9, tuple(batch.shape), generator=torch.Generator().manual_seed(5)) for _ in range(2))
        assert all(torch.equal(one[name], two[name]) for name in one)
        assert torch.equal(torch.get_rng_state(), state)
        kernel.draw(9, tuple(batch.shape))
        assert not torch.equal(torch.get_rng_state(), state)
