"""Loaders: classes of their own, attributes set later, walks that stop, exceptions, lengths."""

import itertools

import torch
from recording import streams
from script_list import decode, features, script
from torch.utils.data import DataLoader, Dataset, RandomSampler, Sampler, SequentialSampler, default_collate


class Rows(Dataset):
    def __init__(self, num=256):
        self.x = features(num)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        decode()
        return self.x[i], i


class Forever:
    """timm's sampler that never ends."""

    def __init__(self, sampler):
        self.sampler = sampler

    def __iter__(self):
        while True:
            yield from iter(self.sampler)


class MultiEpochLoader(DataLoader):
    """timm's loader that keeps its workers between passes."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._DataLoader__initialized = False
        self.batch_sampler = Forever(self.batch_sampler)
        self._DataLoader__initialized = True
        self.iterator = super().__iter__()

    def __len__(self):
        return len(self.batch_sampler.sampler)

    def __iter__(self):
        for _ in range(len(self)):
            yield next(self.iterator)


@script("loaders")
def loader_of_many_epochs(wrap, rec):
    loader = wrap(MultiEpochLoader(Rows(), batch_size=16, shuffle=True))
    for _ in range(4):
        rec([len(loader), isinstance(loader, MultiEpochLoader)])
        for batch in loader:
            rec(batch)
    rec(streams())


@script("loaders")
def loader_of_many_epochs_with_workers(wrap, rec):
    loader = wrap(MultiEpochLoader(Rows(), batch_size=16, shuffle=True, num_workers=2))
    for _ in range(3):
        for batch in loader:
            rec(batch)


@script("loaders")
def loader_with_a_length_of_its_own(wrap, rec):
    class Short(DataLoader):
        def __len__(self):
            return min(5, super().__len__())

        def preview(self):
            return default_collate([self.dataset[0], self.dataset[1]])

    loader = wrap(Short(Rows(), batch_size=16, shuffle=True))
    for _ in range(3):
        for batch in itertools.islice(loader, len(loader)):
            rec(batch)
        rec(loader.preview())
    rec(streams())


@script("loaders", changes=False)
def loader_of_a_device(wrap, rec):
    """fast.ai's way: a wrapper class around any loader."""

    class DeviceLoader:
        def __init__(self, inner):
            self.inner = inner

        def __len__(self):
            return len(self.inner)

        def __iter__(self):
            for x, y in self.inner:
                yield x.to("cpu").double(), y

    loader = DeviceLoader(wrap(DataLoader(Rows(), batch_size=16, shuffle=True)))
    for _ in range(4):
        rec(len(loader))
        for batch in loader:
            rec(batch)


@script("loaders")
def loader_attributes_that_may_not_be_set(wrap, rec):
    loader = wrap(DataLoader(Rows(), batch_size=16, shuffle=True))
    for name, value in (("batch_size", 8), ("dataset", Rows(8)), ("sampler", None), ("drop_last", True)):
        try:
            setattr(loader, name, value)
        except ValueError as error:
            rec(str(error))
        for batch in itertools.islice(loader, 3):
            rec(batch)
    rec([loader.batch_size, loader.drop_last, len(loader), type(loader.sampler).__name__, loader.num_workers])


@script("loaders", attributes=["collate_fn"])
def loader_collate_swapped_in_mid_pass(wrap, rec):
    loader = wrap(DataLoader(Rows(), batch_size=16, shuffle=True))
    for epoch in range(4):
        for number, batch in enumerate(loader):
            rec(batch)
            if (epoch, number) == (2, 4):
                loader.collate_fn = lambda samples: default_collate([(x * 2, y) for x, y in samples])
    rec(streams())


@script("loaders", attributes=["collate_fn"])
def loader_collate_wrapped_by_a_library(wrap, rec):
    loader = wrap(DataLoader(Rows(), batch_size=16, shuffle=True))
    inner, calls = loader.collate_fn, []

    def counted(samples):
        calls.append(len(samples))
        return inner(samples)

    for epoch in range(4):
        if epoch == 2:
            loader.collate_fn = counted
        for batch in loader:
            rec(batch)
    rec(len(calls))


@script("loaders", changes=False)
def loader_generator_seeded_for_each_pass(wrap, rec):
    generator = torch.Generator()
    loader = wrap(DataLoader(Rows(), batch_size=16, shuffle=True, generator=generator))
    for epoch in range(5):
        generator.manual_seed(epoch % 2)
        for batch in loader:
            rec(batch)
        rec(generator.get_state().sum())
    rec(streams())


@script("loaders", changes=False)
def loader_stopped_and_taken_up_again(wrap, rec):
    loader = wrap(DataLoader(Rows(), batch_size=16, shuffle=True))
    for _ in range(3):
        batches = iter(loader)
        for _ in range(5):
            rec(next(batches))
        rec(torch.rand(1))
        other = iter(loader)
        rec([next(other), next(batches), next(other)])
        rec(sum(1 for _ in batches))
        del batches, other
    batches = itertools.chain.from_iterable(itertools.repeat(loader))
    for _ in range(40):
        rec(next(batches))
    rec(streams())


@script("loaders")
def loader_over_a_data_set_that_fails(wrap, rec):
    class Failing(Rows):
        broken = frozenset()

        def __getitem__(self, i):
            if i in self.broken:
                raise OSError(f"cannot read sample {i}")
            return super().__getitem__(i)

    data = Failing()
    loader = wrap(DataLoader(data, batch_size=16))
    for epoch in range(5):
        data.broken = {100} if epoch in (2, 3) else set()
        try:
            for batch in loader:
                rec(batch)
        except OSError as error:
            rec(f"{type(error).__name__}: {error}")
    rec(streams())


@script("loaders")
def loader_whose_sampler_fails_or_is_out_of_range(wrap, rec):
    class Odd(Sampler):
        extra = 0

        def __iter__(self):
            yield from range(250)
            yield 250 + self.extra

        def __len__(self):
            return 251

    sampler = Odd()
    loader = wrap(DataLoader(Rows(), batch_size=50, sampler=sampler))
    for epoch in range(4):
        sampler.extra = 10 if epoch == 2 else 0
        try:
            for batch in loader:
                rec(batch)
        except IndexError as error:
            rec(f"IndexError: {error}")


@script("loaders", attributes=["sampler"])
def loader_sampler_inside_the_batch_sampler_replaced(wrap, rec):
    data = Rows()
    loader = wrap(DataLoader(data, batch_size=16, shuffle=True))
    for epoch in range(4):
        if epoch == 2:
            loader.batch_sampler.sampler = SequentialSampler(data)
        if epoch == 3:
            loader.batch_sampler.drop_last, loader.batch_sampler.batch_size = True, 24
        for batch in loader:
            rec(batch)
    rec(streams())


@script("loaders", attributes=["num_samples"])
def loader_sampler_with_replacement_and_numbers_of_samples(wrap, rec):
    data = Rows()
    sampler = RandomSampler(data, replacement=True, num_samples=100)
    loader = wrap(DataLoader(data, batch_size=16, sampler=sampler))
    for epoch in range(5):
        sampler._num_samples = 100 + 30 * epoch
        for batch in loader:
            rec(batch)
        rec([len(loader), len(sampler)])
    rec(streams())


@script("loaders")
def loader_with_getitems_of_the_data_set(wrap, rec):
    class Fast(Rows):
        def __init__(self):
            super().__init__()
            self.asked = []

        def __getitems__(self, indices):
            self.asked.append(len(indices))
            return [(self.x[i] + len(self.asked), i) for i in indices]

    data = Fast()
    loader = wrap(DataLoader(data, batch_size=16, shuffle=True))
    for _ in range(3):
        for batch in loader:
            rec(batch)
    rec(data.asked)


@script("loaders", changes=False)
def loader_in_nested_loops_and_zip_with_itself(wrap, rec):
    loader = wrap(DataLoader(Rows(64), batch_size=16, shuffle=True))
    for left, right in zip(loader, loader, strict=True):
        rec([left, right])
    for outer in loader:
        rec(outer)
        for inner in loader:
            rec(inner)
            break
    rec(streams())
