"""Which kernel an operation has."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from flatout.pipeline.compile.kernels import blur, convert, crop_and_pad, flips, gray, normalize, resize
from flatout.pipeline.compile.kernels.color import color_jitter
from flatout.pipeline.compile.kernels.core.kernel import Kernel, RandomKernel
from flatout.pipeline.compile.kernels.core.original import class_of, only_has
from flatout.pipeline.compile.kernels.core.plain_functions import function_kernel
from flatout.pipeline.compile.kernels.erasing import random_erasing
from flatout.pipeline.compile.kernels.mixture import random_apply, random_choice, random_order
from flatout.pipeline.compile.kernels.noise import gaussian_noise
from flatout.pipeline.compile.kernels.random_crop import random_crop
from flatout.pipeline.compile.kernels.resized_crop import random_resized_crop
from flatout.pipeline.compile.kernels.rotation import random_affine, random_rotation
from flatout.pipeline.compile.sample_form import SampleForm

__all__ = ["kernel_for"]

_V1 = "torchvision.transforms.transforms"

_Build = Callable[[Any, SampleForm], Kernel | RandomKernel | None]
_Nested = Callable[[Any, SampleForm, Any], Kernel | RandomKernel | None]


@dataclass(frozen=True)
class _Known:
    build: _Build
    attributes: frozenset[str]


def kernel_for(operation: Any, form: SampleForm) -> Kernel | RandomKernel | None:
    """Return the kernel that does `operation` to batches of values of this form; None where there is none.

    Only operations of exactly a known class, with the known attributes and nothing hooked on, have one. It may still
    raise `Unsuited` for a batch.
    """
    where = class_of(operation)
    if form.kind == "tensor" and form.mode and where[0] == _V1:
        return None  # whether v1 keeps the class of v2's tensors differs from operation to operation
    if where in _NESTED:
        build, names = _NESTED[where]
        return build(operation, form, kernel_for) if only_has(operation, names) else None
    known = _KNOWN.get(where)
    if known is None:
        return function_kernel(operation, form) if callable(operation) else None
    return known.build(operation, form) if only_has(operation, known.attributes) else None


def _both(name: str, v2: str, build: _Build, names: str = "", more_v2: str = "") -> Mapping[tuple[str, str], _Known]:
    """Return the entries of a class that both generations of torchvision have, in module `v2` of the second."""
    return {
        (_V1, name): _Known(build, frozenset(names.split())),
        (f"torchvision.transforms.v2.{v2}", name): _Known(build, frozenset(f"{names} {more_v2}".split())),
    }


_SAMPLED = "size interpolation antialias"
_PADDED = "padding fill padding_mode"
_TURNED = "degrees interpolation center fill"

_KNOWN: Mapping[tuple[str, str], _Known] = {
    **_both("ToTensor", "_deprecated", convert.to_tensor),
    **_both("PILToTensor", "_type_conversion", convert.pil_to_tensor),
    ("torchvision.transforms.v2._type_conversion", "ToImage"): _Known(convert.to_image, frozenset()),
    ("torchvision.transforms.v2._misc", "ToDtype"): _Known(convert.to_dtype, frozenset({"dtype", "scale"})),
    ("torchvision.transforms.v2._misc", "GaussianNoise"): _Known(gaussian_noise, frozenset({"mean", "sigma", "clip"})),
    **_both("ConvertImageDtype", "_misc", convert.convert_image_dtype, "dtype"),
    **_both("Normalize", "_misc", normalize.normalize, "mean std inplace"),
    **_both("Resize", "_geometry", resize.resize, f"{_SAMPLED} max_size"),
    **_both("CenterCrop", "_geometry", crop_and_pad.center_crop, "size"),
    **_both("Pad", "_geometry", crop_and_pad.pad, _PADDED, more_v2="_fill"),
    **_both("Grayscale", "_color", gray.grayscale, "num_output_channels"),
    **_both("RandomGrayscale", "_color", gray.random_grayscale, "p"),
    **_both("RandomHorizontalFlip", "_geometry", flips.random_horizontal_flip, "p"),
    **_both("RandomVerticalFlip", "_geometry", flips.random_vertical_flip, "p"),
    **_both("RandomCrop", "_geometry", random_crop, f"size pad_if_needed {_PADDED}", more_v2="_fill"),
    **_both("RandomResizedCrop", "_geometry", random_resized_crop, f"{_SAMPLED} scale ratio", more_v2="_log_ratio"),
    **_both("ColorJitter", "_color", color_jitter, "brightness contrast saturation hue"),
    **_both("RandomErasing", "_augment", random_erasing, "p scale ratio value inplace", more_v2="_log_ratio"),
    **_both("RandomRotation", "_geometry", random_rotation, f"{_TURNED} expand", more_v2="_fill"),
    **_both("RandomAffine", "_geometry", random_affine, f"{_TURNED} translate scale shear", more_v2="_fill"),
    **_both("GaussianBlur", "_misc", blur.gaussian_blur, "kernel_size sigma"),
}

_NESTED: Mapping[tuple[str, str], tuple[_Nested, frozenset[str]]] = {
    (_V1, "RandomApply"): (random_apply, frozenset({"transforms", "p"})),
    ("torchvision.transforms.v2._container", "RandomApply"): (random_apply, frozenset({"transforms", "p"})),
    (_V1, "RandomChoice"): (random_choice, frozenset({"transforms", "p"})),
    ("torchvision.transforms.v2._container", "RandomChoice"): (random_choice, frozenset({"transforms", "p"})),
    ("torchvision.transforms.v2._container", "RandomOrder"): (random_order, frozenset({"transforms"})),
}
