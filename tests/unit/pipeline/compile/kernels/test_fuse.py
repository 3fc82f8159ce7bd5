"""Kernels joined into one, and any chain of them, against the chain run sample by sample."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.unit.pipeline.compile.kernels.samples import SIZES, T, agree, samples, v2
from torch.utils.data import default_collate

from flatout.native import native
from flatout.pipeline.compile.chain import flatten
from flatout.pipeline.compile.fuse import _PIECE_BYTES, fuse
from flatout.pipeline.compile.kernels.core.kernel import Kernel, RandomKernel
from flatout.pipeline.compile.registry import kernel_for
from flatout.pipeline.compile.sample_form import pack

NORMALIZE = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


def kernels_of(operations, form) -> list[Kernel]:
    kernels = []
    for operation in operations:
        kernels.append(kernel_for(operation, form))
        form = kernels[-1].after
    return kernels


CHAINS = {
    "to-tensor": ("RGB", [T.ToTensor(), T.Normalize(*NORMALIZE)]),
    "gray": ("L", [T.ToTensor(), T.Normalize((0.1307,), (0.3081,))]),
    "resized": ("RGB", [T.Resize(64), T.ToTensor(), T.Normalize(*NORMALIZE)]),
    "v1-dtype": ("RGB", [T.PILToTensor(), T.ConvertImageDtype(torch.float32), T.Normalize(*NORMALIZE)]),
    "v2": ("RGB", [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(*NORMALIZE)]),
    "v2-unscaled": ("L", [v2.ToImage(), v2.ToDtype(torch.float32), v2.Normalize((0.5,), (0.5,))]),
    "twice": ("uint8", [T.ConvertImageDtype(torch.float64), T.Normalize(*NORMALIZE), T.Normalize(*NORMALIZE)]),
    "arrays": ("array", [T.ToTensor(), T.Normalize(*NORMALIZE)]),
    "floats": ("floats", [T.ToTensor(), T.Normalize(*NORMALIZE)]),
}


@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.few(10)
@pytest.mark.slow
def test_a_joined_chain_is_one_kernel_with_the_originals_bits_and_strides(name):
    kind, operations = CHAINS[name]
    for size in SIZES:
        values = samples(kind, size, num=5)
        form, batch = pack(values)
        *first, joined = fuse(kernels_of(operations, form))
        assert len(first) == (name == "resized" and native.available())  # compiled code looks up by itself
        for operation in operations:
            values = [operation(value) for value in values]
        for kernel in first:
            batch = kernel.run(batch)
        before = batch.clone()
        made = joined.run(batch)
        agree(joined.after, made, values)
        assert torch.equal(batch, before)
        out = torch.full_like(made, 7)
        joined.run_into(batch, out)
        assert torch.equal(out, default_collate(values))


def test_a_batch_of_many_pieces_is_joined_from_all_of_them():
    values = samples("RGB", (96, 96), num=13)
    form, batch = pack(values)
    chain = [T.ToTensor(), T.Normalize(*NORMALIZE)]
    (joined,) = fuse(kernels_of(chain, form))
    wanted = default_collate([chain[1](chain[0](value)) for value in values])
    assert 2 < wanted.numel() * 4 / _PIECE_BYTES < 13
    assert torch.equal(joined.run(batch), wanted)
    assert joined.run(batch[:0]).shape == (0, 3, 96, 96)


def test_what_cannot_be_joined_stays():
    form, _ = pack(samples("RGB"))
    alone = kernels_of([T.CenterCrop(3), T.PILToTensor()], form)
    for chain in (alone, kernels_of([T.ToTensor()], form)):
        assert [kernel.run for kernel in fuse(chain)] == [kernel.run for kernel in chain]
    assert fuse([]) == []


def test_a_transform_is_taken_apart_into_its_operations():
    first, second, third = T.ToTensor(), T.CenterCrop(3), v2.CenterCrop(2)
    nested = T.Compose([first, torch.nn.Sequential(second, torch.nn.Sequential(third)), v2.Compose([second])])
    assert flatten(nested) == [first, second, third, second]
    assert flatten(None) == []
    assert flatten(first) == [first]

    class MyCompose(T.Compose):
        pass

    own, hooked = MyCompose([first]), torch.nn.Sequential(second)
    hooked.register_forward_pre_hook(lambda *_: None)
    assert flatten(own) == [own]
    assert flatten(hooked) == [hooked]


IMAGE_OPERATIONS = st.one_of(
    st.builds(T.Resize, st.integers(1, 40)),
    st.builds(T.Resize, st.tuples(st.integers(1, 40), st.integers(1, 40))),
    st.builds(T.CenterCrop, st.tuples(st.integers(1, 40), st.integers(1, 40))),
    st.builds(
        T.Pad,
        st.tuples(*[st.integers(0, 9)] * 4),
        fill=st.integers(0, 255),
        padding_mode=st.sampled_from(["constant", "edge", "reflect", "symmetric"]),
    ),
    st.builds(T.Grayscale, st.sampled_from([1, 3])),
    st.builds(T.RandomHorizontalFlip),
    st.builds(T.RandomResizedCrop, st.integers(1, 30)),
    st.builds(T.ColorJitter, *[st.floats(0, 1)] * 3, st.floats(0, 0.5)),
    st.builds(T.RandomCrop, st.integers(1, 30), padding=st.integers(0, 3), pad_if_needed=st.just(True)),
    st.builds(v2.RandomVerticalFlip),
    st.builds(v2.RandomGrayscale),
)
TO_TENSOR = st.sampled_from(
    [
        [T.ToTensor()],
        [T.ToTensor(), T.Normalize((0.5,), (0.25,))],
        [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize((0.5,), (0.25,))],
        [T.PILToTensor()],
        [T.ToTensor(), T.RandomErasing(0.5)],
    ]
)


@settings(max_examples=examples(60))
@given(
    kind=st.sampled_from(["L", "RGB"]),
    size=st.tuples(st.integers(1, 33), st.integers(1, 33)),
    images=st.lists(IMAGE_OPERATIONS, max_size=4),
    tensors=TO_TENSOR,
    seed=st.integers(0, 2**31),
)
def test_any_chain_gives_the_bits_of_the_originals_with_the_same_parameters(kind, size, images, tensors, seed):
    values = samples(kind, size, num=4, seed=seed)
    form, batch = pack(values)
    generator = torch.Generator().manual_seed(seed)
    for operation in (*images, *tensors):
        if min(values[0].size if form.kind == "image" else values[0].shape) < 1:
            return
        kernel = kernel_for(operation, form)
        if isinstance(kernel, RandomKernel):
            params = kernel.draw(len(batch), tuple(batch.shape), generator=generator)
            batch, values = kernel.run(batch, params), [kernel.forced(v, params, i) for i, v in enumerate(values)]
        else:
            batch, values = kernel.run(batch), [operation(value) for value in values]
        form = kernel.after
        agree(form, batch, values)
