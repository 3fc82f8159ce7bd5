"""Batches: written into by the training, kept by it, shared with the data set, of types of their own."""

import collections
from dataclasses import dataclass

import numpy as np
import torch
from recording import streams
from script_list import decode, features, script
from torch.utils.data import DataLoader, Dataset, TensorDataset, default_collate

Batch = collections.namedtuple("Batch", "inputs labels")


class Rows(Dataset):
    def __init__(self):
        self.x = features()

    def __len__(self):
        return 256

    def __getitem__(self, i):
        decode()
        return self.x[i], i


@script("batches", changes=False)
def batch_normalized_in_place(wrap, rec):
    loader = wrap(DataLoader(Rows(), batch_size=16, shuffle=True))
    for _ in range(4):
        for x, y in loader:
            rec([x, y])
            x.sub_(x.mean()).div_(x.std())
            y.fill_(-1)
            rec([x, y])
    rec(streams())


@script("batches", changes=False)
def batch_kept_for_the_whole_training(wrap, rec):
    loader, kept = wrap(DataLoader(Rows(), batch_size=16, shuffle=True)), []
    for _ in range(4):
        for batch in loader:
            kept.append(batch)
            if len(kept) % 10 == 5:
                kept[-3][0].zero_()
    for batch in kept:
        rec(batch)
    rec([x for x, _ in kept])


@script("batches")
def batch_of_views_of_the_data_set(wrap, rec):
    """What a collate function hands out is the memory of the data set: a write goes there."""
    data = Rows()
    loader = wrap(DataLoader(data, batch_size=16, shuffle=True, collate_fn=lambda s: [x for x, _ in s]))
    for epoch in range(4):
        for batch in loader:
            rec(batch)
            if epoch >= 1:
                batch[3].mul_(0.5)
    rec(data.x)


@script("batches")
def batch_of_one_sample_is_the_data_sets_own(wrap, rec):
    data = TensorDataset(features(64))
    loader = wrap(DataLoader(data, batch_size=None, shuffle=True))
    for epoch in range(4):
        for (row,) in loader:
            rec(row)
            if epoch == 1:
                row.add_(1)
    rec(data.tensors[0])


@script("batches", changes=False)
def batch_with_a_tensor_twice_and_its_half(wrap, rec):
    def views(samples):
        x, y = default_collate(samples)
        return {"query": x, "key": x, "left": x[:, :32], "labels": [y, y]}

    loader = wrap(DataLoader(Rows(), batch_size=16, shuffle=True, collate_fn=views))
    for _ in range(4):
        for batch in loader:
            rec(batch)
            batch["left"].zero_()
            rec(batch)


@script("batches", changes=False)
def batch_named_tuple_of_arrays(wrap, rec):
    def stack(samples):
        return Batch(np.stack([x.numpy() for x, _ in samples]), np.array([y for _, y in samples]))

    loader = wrap(DataLoader(Rows(), batch_size=16, shuffle=True, collate_fn=stack))
    for epoch in range(4):
        for batch in loader:
            rec(batch)
            rec([batch.inputs.flags.c_contiguous, batch.inputs.flags.owndata, batch.inputs.base is None])
            batch.inputs[:] = epoch


@script("batches", changes=False)
def batch_transposed_and_channels_last(wrap, rec):
    def images(samples):
        x, y = default_collate(samples)
        return x.view(-1, 4, 4, 4).contiguous(memory_format=torch.channels_last), x.t(), y.to(torch.int32)

    loader = wrap(DataLoader(Rows(), batch_size=16, shuffle=True, collate_fn=images))
    for _ in range(3):
        for batch in loader:
            rec(batch)


@dataclass
class Item:
    x: torch.Tensor
    y: int


@script("batches", changes=False)
def batch_object_with_methods(wrap, rec):
    class Collated:
        def __init__(self, items):
            self.x, self.y = torch.stack([item.x for item in items]), [item.y for item in items]

        def pin_memory(self):
            return self

    class Items(Rows):
        def __getitem__(self, i):
            decode()
            return Item(self.x[i], i)

    loader = wrap(DataLoader(Items(), batch_size=16, shuffle=True, collate_fn=Collated))
    for _ in range(4):
        for batch in loader:
            rec(batch)
            batch.y.append("seen")


@script("batches", changes=False)
def batch_that_requires_gradients(wrap, rec):
    def learnable(samples):
        x, y = default_collate(samples)
        return x.requires_grad_(), y

    loader = wrap(DataLoader(Rows(), batch_size=16, shuffle=True, collate_fn=learnable))
    for _ in range(3):
        for x, y in loader:
            rec([x, y])
            (x * y[:, None]).sum().backward()
            rec(x.grad)


@script("batches", changes=False)
def batch_without_copies_of_numbers_and_strings(wrap, rec):
    class Mixed(Dataset):
        def __len__(self):
            return 128

        def __getitem__(self, i):
            decode()
            return {"name": f"{i}.png", "size": (i, i + 1), "ratio": i / 3, "flag": i % 2 == 0, "raw": b"x" * (i % 3)}

    loader = wrap(DataLoader(Mixed(), batch_size=16, shuffle=True))
    for epoch in range(4):
        for batch in loader:
            rec(batch)
            batch["name"].sort()
            batch["extra"] = epoch


@script("batches", attributes=["cached"])
def batch_sample_object_given_again(wrap, rec):
    """The data set hands out the same tensor each time; the loop changes the sample, not the batch."""

    class Own(Dataset):
        def __init__(self):
            self.cached = [torch.full((4,), float(i)) for i in range(64)]

        def __len__(self):
            return 64

        def __getitem__(self, i):
            decode()
            return self.cached[i]

    data = Own()
    loader = wrap(DataLoader(data, batch_size=8, shuffle=True, collate_fn=tuple))
    for epoch in range(5):
        for batch in loader:
            rec(batch)
            rec([any(sample is own for own in data.cached) for sample in batch])
            if epoch == 2:
                batch[0].neg_()


@script("batches", changes=False)
def batch_expanded_and_sparse_and_complex(wrap, rec):
    def odd(samples):
        x, y = default_collate(samples)
        return y[:, None].expand(-1, 5), torch.eye(3).to_sparse(), torch.complex(x, x).conj(), x.half(), x.bool()

    loader = wrap(DataLoader(Rows(), batch_size=16, shuffle=True, collate_fn=odd))
    for _ in range(3):
        for batch in loader:
            rec(batch[:1] + batch[2:])
            rec([batch[1].layout is torch.sparse_coo, batch[2].is_conj()])
