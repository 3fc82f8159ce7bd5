"""`RandomRotation` and `RandomAffine`: Pillow and torchvision turn each image, at angles of its own."""

from typing import Any

from flatout.pipeline.compile.kernels.core.kernel import Drawn, Params, RandomKernel
from flatout.pipeline.compile.kernels.core.original import functional, is_v2
from flatout.pipeline.compile.kernels.core.per_sample import each
from flatout.pipeline.compile.kernels.crop_and_pad import common_fill
from flatout.pipeline.compile.rng import Generator, uniform
from flatout.pipeline.compile.sample_form import SampleForm

__all__ = ["random_affine", "random_rotation"]


def random_rotation(operation: Any, form: SampleForm) -> RandomKernel | None:
    """Return the kernel of `RandomRotation` where the image keeps its size."""
    if form.kind == "array" or operation.expand or not common_fill(operation):
        return None
    rotate = functional(operation).rotate

    def draw(shape: tuple[int, ...], generator: Generator = None) -> Drawn:
        return {"angle": uniform(operation.degrees, generator)}

    def forced(value: Any, params: Params, i: int) -> object:
        return rotate(
            value,
            float(params["angle"][i]),
            interpolation=operation.interpolation,
            expand=False,
            center=operation.center,
            fill=_fill(operation, form, value),
        )

    return each("RandomRotation", form, draw, forced)


def random_affine(operation: Any, form: SampleForm) -> RandomKernel | None:
    """Return the kernel of `RandomAffine`."""
    if form.kind == "array" or not common_fill(operation):
        return None
    affine = functional(operation).affine

    def draw(shape: tuple[int, ...], generator: Generator = None) -> Drawn:
        tall, wide = shape[1:3] if form.kind == "image" else shape[-2:]
        return _draw(operation, (tall, wide), generator)

    def forced(value: Any, params: Params, i: int) -> object:
        angle, x, y, scale, shear_x, shear_y = (params[name][i].item() for name in _NAMES)
        return affine(
            value,
            angle,
            [x, y],
            scale,
            [shear_x, shear_y],
            interpolation=operation.interpolation,
            fill=_fill(operation, form, value),
            center=operation.center,
        )

    return each("RandomAffine", form, draw, forced)


_NAMES = ("angle", "x", "y", "scale", "shear_x", "shear_y")


def _draw(operation: Any, size: tuple[int, int], generator: Generator) -> Drawn:
    """Draw angle, whole pixels of translation, scale and the angles of shear; what is not asked for stays as it is."""
    tall, wide = size
    drawn: Drawn = {**dict.fromkeys(_NAMES, 0.0), "scale": 1.0, "x": 0, "y": 0}
    drawn["angle"] = uniform(operation.degrees, generator)
    if operation.translate is not None:
        for name, most in (("x", operation.translate[0] * wide), ("y", operation.translate[1] * tall)):
            drawn[name] = round(uniform((-most, most), generator))
    if operation.scale is not None:
        drawn["scale"] = uniform(operation.scale, generator)
    if operation.shear is not None:
        drawn["shear_x"] = uniform(operation.shear[:2], generator)
        if len(operation.shear) == 4:
            drawn["shear_y"] = uniform(operation.shear[2:], generator)
    return drawn


def _fill(operation: Any, form: SampleForm, value: Any) -> Any:
    """Return the fill as the original hands it on: for tensors v1 makes one number a channel of it."""
    (fill,) = common_fill(operation)
    if form.kind == "image" or is_v2(operation):
        return fill
    return [float(fill)] * value.shape[-3] if isinstance(fill, int | float) else [float(number) for number in fill]
