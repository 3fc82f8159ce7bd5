"""The operations of a transform chain, done to whole batches: which there are, and how they are told apart."""

from flatout.pipeline.kernels.chain import flatten
from flatout.pipeline.kernels.fuse import fuse
from flatout.pipeline.kernels.kernel import Draw, Drawn, Kernel, Params, RandomKernel, Unsuited, collected
from flatout.pipeline.kernels.lookup import kernel_for

__all__ = [
    "Draw",
    "Drawn",
    "Kernel",
    "Params",
    "RandomKernel",
    "Unsuited",
    "collected",
    "flatten",
    "fuse",
    "kernel_for",
]
