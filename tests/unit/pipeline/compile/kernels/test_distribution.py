"""The parameters that are drawn for a batch against those that the originals draw one by one."""

import math

import pytest
import torch
from tests.unit.pipeline.compile.kernels.samples import T, samples, v2

from flatout.pipeline.compile.registry import kernel_for
from flatout.pipeline.compile.sample_form import SampleForm, pack

pytestmark = pytest.mark.slow

NUM = 1500
FAR = 1.95 * math.sqrt(2 / NUM)  # exceeded by 1 of 1,000 pairs of samples of one distribution; the seeds are fixed
RGB = SampleForm("image", "RGB")


def distance(one, other) -> float:
    """Return the largest gap between two empirical distributions (Kolmogorov and Smirnov)."""
    one, other = torch.as_tensor(one).double().sort().values, torch.as_tensor(other).double().sort().values
    both = torch.cat((one, other))
    shares = [torch.searchsorted(side, both, right=True) / len(side) for side in (one, other)]
    return float((shares[0] - shares[1]).abs().max())


def drawn(operation, form, shape):
    kernel = kernel_for(operation, form)
    return kernel.draw(NUM, (NUM, *shape), generator=torch.Generator().manual_seed(11))


def alike(params, names, originals) -> None:
    for place, name in enumerate(names):
        assert distance(params[name], [each[place] for each in originals]) < FAR, name


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(7)


@pytest.mark.parametrize("size", [(20, 31), (50, 6), (4, 4)])
@pytest.mark.parametrize("settings", [{}, {"scale": (0.5, 1.0), "ratio": (0.9, 1.1)}])
def test_windows_of_random_resized_crop(size, settings):
    operation = T.RandomResizedCrop(8, **settings)
    image = torch.zeros(3, *size)
    originals = [operation.get_params(image, operation.scale, operation.ratio) for _ in range(NUM)]
    alike(drawn(operation, RGB, (*size, 3)), ("top", "left", "height", "width"), originals)


def test_windows_of_random_resized_crop_of_v2():
    operation = v2.RandomResizedCrop(8)
    image = torch.zeros(3, 20, 31)
    originals = [tuple(operation.make_params([image])[name] for name in NAMES) for _ in range(NUM)]
    alike(drawn(operation, SampleForm("tensor", "Image"), (3, 20, 31)), NAMES, originals)


NAMES = ("top", "left", "height", "width")


def test_windows_of_random_crop():
    operation = T.RandomCrop((5, 8))
    originals = [operation.get_params(torch.zeros(3, 20, 31), (5, 8))[:2] for _ in range(NUM)]
    params = drawn(operation, RGB, (20, 31, 3))
    alike(params, ("top", "left"), originals)
    assert params["top"].max() == 15
    assert params["left"].max() == 23


def test_windows_of_random_erasing():
    operation = T.RandomErasing(1.0)
    image = torch.zeros(3, 20, 31)
    originals = [operation.get_params(image, operation.scale, operation.ratio, [0.0])[:4] for _ in range(NUM)]
    params = drawn(operation, SampleForm("tensor"), (3, 20, 31))
    assert params["erased"].all()
    alike(params, NAMES, originals)


def test_strengths_and_order_of_colour_jitter():
    operation = T.ColorJitter(0.4, (0.5, 2), 0.3, 0.1)
    params = drawn(operation, RGB, (8, 8, 3))
    originals = [
        operation.get_params(operation.brightness, operation.contrast, operation.saturation, operation.hue)
        for _ in range(NUM)
    ]
    alike(params, ("brightness", "contrast", "saturation", "hue"), [each[1:] for each in originals])
    codes = (params["order"] * torch.tensor([64, 16, 4, 1])).sum(1)
    counts = codes.unique(return_counts=True)[1]
    expected = NUM / 24
    assert len(counts) == 24
    assert float(((counts - expected) ** 2 / expected).sum()) < 49.7  # chi-squared, 23 degrees: 1 of 1,000


def test_angles_and_shifts_of_affine_and_rotation():
    operation = T.RandomAffine(30, (0.2, 0.3), (0.5, 2), (-5, 5, 10, 20))
    originals = []
    for _ in range(NUM):
        angle, shift, scale, shear = operation.get_params(
            operation.degrees, operation.translate, operation.scale, operation.shear, [31, 20]
        )
        originals.append((angle, *shift, scale, *shear))
    params = drawn(operation, RGB, (20, 31, 3))
    alike(params, ("angle", "x", "y", "scale", "shear_x", "shear_y"), originals)
    rotation = T.RandomRotation((10, 80))
    angles = [(rotation.get_params(rotation.degrees),) for _ in range(NUM)]
    alike(drawn(rotation, RGB, (20, 31, 3)), ("angle",), angles)


def test_widths_of_gaussian_blur():
    operation = T.GaussianBlur(3, (0.3, 4.0))
    originals = [(operation.get_params(0.3, 4.0),) for _ in range(NUM)]
    alike(drawn(operation, RGB, (8, 8, 3)), ("sigma",), originals)


@pytest.mark.parametrize("p", [0.0, 0.2, 0.5, 1.0])
@pytest.mark.parametrize(
    ("make", "name"),
    [
        (T.RandomHorizontalFlip, "flip"),
        (v2.RandomVerticalFlip, "flip"),
        (T.RandomGrayscale, "gray"),
        (lambda p: T.RandomApply([T.RandomHorizontalFlip(1.0)], p), "way"),
    ],
)
def test_shares_of_changed_samples(make, name, p):
    share = float(drawn(make(p), RGB, (8, 8, 3))[name].double().mean())
    assert abs(share - p) <= 3.3 * math.sqrt(p * (1 - p) / NUM)


def test_shares_of_random_choice():
    flips = [T.RandomHorizontalFlip(1.0), T.RandomVerticalFlip(1.0), T.RandomHorizontalFlip(0.0)]
    for shares, operation in (
        ([1 / 3] * 3, T.RandomChoice(flips)),
        ([0.1, 0.6, 0.3], T.RandomChoice(flips, p=[1, 6, 3])),
        ([0.1, 0.6, 0.3], v2.RandomChoice(flips, p=[1, 6, 3])),
    ):
        counts = drawn(operation, RGB, (8, 8, 3))["way"][:, 0].bincount(minlength=3) / NUM
        assert (counts - torch.tensor(shares)).abs().max() < 3.3 * 0.5 / math.sqrt(NUM)


def test_noise_has_the_originals_mean_and_spread():
    form, batch = pack([torch.full((3, 40, 40), 0.5)] * 8)
    kernel = kernel_for(v2.GaussianNoise(0.02, 0.1, clip=False), form)
    added = kernel.run(batch, kernel.draw(8, tuple(batch.shape), generator=torch.Generator().manual_seed(1))) - 0.5
    assert abs(float(added.mean()) - 0.02) < 0.002
    assert abs(float(added.std()) - 0.1) < 0.002
    assert distance(added[0].flatten(), added[1].flatten()) < 0.05
    assert not torch.equal(added[0], added[1])


def test_samples_of_one_batch_have_parameters_of_their_own():
    values = samples("RGB", (20, 31), num=16)
    form, batch = pack(values)
    for operation in (T.RandomResizedCrop(5), T.ColorJitter(0.4), T.RandomAffine(9), T.GaussianBlur(3)):
        params = kernel_for(operation, form).draw(16, tuple(batch.shape))
        assert any(len(value.unique(dim=0)) > 8 for value in params.values())
