"""How long each operation of a transform takes: the look leaves data set and transform as they were."""

import numpy as np
import torch

from flatout.probe.loader.transform_stages import look_at_stages


class Compose:
    def __init__(self, transforms):
        self.transforms = transforms

    def __call__(self, image):
        for transform in self.transforms:
            image = transform(image)
        return image


class Brighten:
    def __call__(self, image):
        return image * 2


class CenterCrop:
    def __call__(self, image):
        return image[..., 8:24, 8:24]


class Images(torch.utils.data.Dataset):
    def __init__(self, transform, count=20):
        self.transform, self.count, self.asked = transform, count, []

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        self.asked.append(index)
        return self.transform(torch.zeros(3, 32, 32)), 0


def test_operations_are_told_in_order_with_their_pixels():
    transform = Compose([Brighten(), CenterCrop()])
    before = list(transform.transforms)
    found = look_at_stages(torch.utils.data.Subset(Images(transform), range(10)))
    assert [(one.name, one.pixels_before, one.pixels_after) for one in found] == [
        ("Brighten", 1024, 1024),
        ("CenterCrop", 1024, 256),
    ]
    assert all(one.seconds > 0 and one.library == "" for one in found)
    assert transform.transforms == before
    assert all(a is b for a, b in zip(transform.transforms, before, strict=True))


def test_a_data_set_that_fails_is_no_failure_of_ours_and_keeps_its_transform():
    transform = Compose([Brighten(), lambda image: image[0][99]])
    before = transform.transforms
    assert look_at_stages(Images(transform)) == ()
    assert transform.transforms is before


def test_of_two_lists_and_of_none_nothing_is_said():
    two = Images(Compose([Brighten(), CenterCrop()]))
    two.target_transform = Compose([Brighten(), Brighten()])
    assert look_at_stages(two) == ()
    assert look_at_stages(torch.utils.data.TensorDataset(torch.zeros(4, 2))) == ()
    assert look_at_stages(object()) == ()


def test_operations_that_are_not_all_called_each_time_are_not_told():
    class Sometimes(Compose):
        def __call__(self, image):
            return self.transforms[0](image)

    Sometimes.__name__ = "Compose"
    assert look_at_stages(Images(Sometimes([Brighten(), CenterCrop()]))) == ()


def test_arrays_count_their_pixels_with_channels_last():
    class Arrays(Images):
        def __getitem__(self, index):
            return self.transform(np.zeros((20, 10, 3), dtype=np.uint8))

    (first, _) = look_at_stages(Arrays(Compose([Brighten(), lambda array: array[:5]])))
    assert first.pixels_before == 200
