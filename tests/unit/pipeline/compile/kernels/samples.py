"""Samples of every form, and the comparison of a kernel with the operation that it stands for."""

import copy

import numpy as np
import torch
from PIL import Image
from tests.torchvision_stub import torchvision  # first of torchvision's: it may need the stub
from torch.utils.data import default_collate
from torchvision import transforms as T
from torchvision import tv_tensors as Tv
from torchvision.transforms import v2

from flatout.pipeline.compile.kernels.core.kernel import Kernel, RandomKernel
from flatout.pipeline.compile.registry import kernel_for
from flatout.pipeline.compile.sample_form import SampleForm, pack, unpack

__all__ = ["FORMS", "SIZES", "T", "Tv", "check", "check_chain", "check_random", "same", "samples", "torchvision", "v2"]

SIZES = ((32, 32), (7, 5), (1, 1), (1, 9), (13, 1), (20, 31))
FORMS = ("L", "RGB", "uint8", "float", "gray", "Image", "array", "array2", "floats")


def samples(kind: str, size: tuple[int, int] = (7, 5), num: int = 4, seed: int = 0):
    """Return `num` values of one form and size, with all kinds of bytes."""
    rng = np.random.default_rng(seed)
    pixels = rng.integers(0, 256, (num, *size, 3), dtype=np.uint8)
    pixels[0] //= 128
    pixels[-1, ..., 1:] = pixels[-1, ..., :1]  # gray
    one = pixels[..., 0]
    makers = {
        "L": lambda i: Image.fromarray(one[i]),
        "RGB": lambda i: Image.fromarray(pixels[i]),
        "uint8": lambda i: torch.from_numpy(pixels[i].transpose(2, 0, 1).copy()),
        "float": lambda i: torch.from_numpy(pixels[i].transpose(2, 0, 1).astype(np.float32) / 255),
        "gray": lambda i: torch.from_numpy(one[i][None].astype(np.float32) / 255),
        "Image": lambda i: Tv.Image(torch.from_numpy(pixels[i].transpose(2, 0, 1).copy())),
        "Video": lambda i: Tv.Video(torch.from_numpy(pixels[i : i + 1].repeat(2, 0).transpose(0, 3, 1, 2))),
        "array": lambda i: pixels[i].copy(),
        "array2": lambda i: one[i].copy(),
        "floats": lambda i: rng.random((*size, 3), dtype=np.float32),
    }
    return [makers[kind](i) for i in range(num)]


def same(one, other) -> bool:
    """Tell whether two values are the same class of thing with the same bits."""
    if isinstance(one, Image.Image):
        return one.mode == other.mode and one.size == other.size and one.tobytes() == other.tobytes()
    if isinstance(one, torch.Tensor):
        return type(one) is type(other) and one.dtype == other.dtype and torch.equal(one, other)
    return isinstance(other, np.ndarray) and one.dtype == other.dtype and np.array_equal(one, other)


def check(operation, values) -> Kernel:
    """Fail unless the operation's kernel gives what it gives to each value, batched: bits, form and strides."""
    return check_chain([operation], values)[0]


def check_chain(operations, values) -> list[Kernel]:
    form, batch = pack(values)
    before, kernels = batch.clone(), []
    for operation in operations:
        wanted = [operation(copy.copy(value)) for value in values]
        kernel = kernel_for(operation, form)
        assert isinstance(kernel, Kernel), f"no kernel for {operation} on {form}"
        made = kernel.run(batch)
        assert torch.equal(batch, before)
        for chunk in (1, 3):
            cut = [kernel.run(batch[at : at + chunk]) for at in range(0, len(batch), chunk)]
            assert torch.equal(torch.cat(cut), made)
        form, batch, values = kernel.after, made, wanted
        agree(form, batch, values)
        before = batch.clone()
        kernels.append(kernel)
    return kernels


def agree(form: SampleForm, batch: torch.Tensor, wanted) -> None:
    """Fail unless the batch holds the wanted values, and is what collating them gives."""
    for row, value in zip(batch, wanted, strict=True):
        assert same(value, unpack(form, row))
    if form.kind != "image":
        stacked = default_collate(wanted)
        assert stacked.dtype == batch.dtype
        assert torch.equal(stacked, batch)
        assert stacked.stride() == batch.stride()
    else:
        assert pack(wanted)[0] == form


def check_random(operation, values, seed: int = 0) -> RandomKernel:
    """Fail unless the kernel gives what the original gives to each value with the same parameters."""
    form, batch = pack(values)
    before = batch.clone()
    kernel = kernel_for(operation, form)
    assert isinstance(kernel, RandomKernel), f"no random kernel for {operation} on {form}"
    params = kernel.draw(len(batch), tuple(batch.shape), generator=torch.Generator().manual_seed(seed))
    assert all(len(value) == len(batch) for value in params.values())
    made = kernel.run(batch, params)
    assert torch.equal(batch, before)
    agree(kernel.after, made, [kernel.forced(copy.copy(value), params, i) for i, value in enumerate(values)])
    half = {name: value[1:3] for name, value in params.items()}
    assert torch.equal(kernel.run(batch[1:3], half), made[1:3])
    return kernel
