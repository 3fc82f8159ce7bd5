"""`GaussianBlur`, with a width of its own for each sample."""

from typing import Any

from flatout.pipeline.compile.kernels.core.kernel import Drawn, Params, RandomKernel
from flatout.pipeline.compile.kernels.core.original import functional
from flatout.pipeline.compile.kernels.core.per_sample import each
from flatout.pipeline.compile.rng import Generator, uniform
from flatout.pipeline.compile.sample_form import SampleForm

__all__ = ["gaussian_blur"]


def gaussian_blur(operation: Any, form: SampleForm) -> RandomKernel | None:
    """Return the kernel of `GaussianBlur`."""
    if form.kind == "array":
        return None
    blur = functional(operation).gaussian_blur

    def draw(shape: tuple[int, ...], generator: Generator = None) -> Drawn:
        return {"sigma": uniform(operation.sigma, generator)}

    def forced(value: Any, params: Params, i: int) -> object:
        sigma = float(params["sigma"][i])
        return blur(value, list(operation.kernel_size), [sigma, sigma])

    return each("GaussianBlur", form, draw, forced)
