"""`GaussianNoise`, from a seed of its own for each sample."""

from typing import Any

import torch

from flatout.pipeline.compile.kernels.core.kernel import Drawn, Params, RandomKernel
from flatout.pipeline.compile.kernels.core.original import functional
from flatout.pipeline.compile.kernels.core.per_sample import each
from flatout.pipeline.compile.rng import Generator, torchs
from flatout.pipeline.compile.sample_form import SampleForm

__all__ = ["gaussian_noise"]

_SEEDS = 2**62


def gaussian_noise(operation: Any, form: SampleForm) -> RandomKernel | None:
    """Return the kernel of `GaussianNoise` on tensors."""
    if form.kind != "tensor":
        return None
    original = functional(operation).gaussian_noise

    def draw(shape: tuple[int, ...], generator: Generator = None) -> Drawn:
        return {"seed": int(torch.randint(_SEEDS, (), generator=torchs(generator)))}

    def forced(value: Any, params: Params, i: int) -> object:
        with torch.random.fork_rng(devices=[]):  # the original draws from the default generator only
            torch.default_generator.manual_seed(int(params["seed"][i]))
            plain = value.clone(
                memory_format=torch.contiguous_format
            )  # the stream fills memory, in whatever order the axes lie there
            return original(plain, mean=operation.mean, sigma=operation.sigma, clip=operation.clip)

    return each("GaussianNoise", form, draw, forced, exact=False)  # the original fills memory as it lies there
