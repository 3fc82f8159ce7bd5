"""Kinds of change that were found to pass unseen: loaders, batches, samplers and workers."""

import random

import torch
from given_changes import Table, passes
from recording import streams
from script_list import decode, features, script
from torch.utils.data import DataLoader, Dataset, Sampler, default_collate, get_worker_info


@script("given")
def given_input_and_target_are_one_tensor(wrap, rec):
    def autoencoding(samples):
        stacked = torch.stack([row for row, _ in samples])
        return {"input": stacked, "target": stacked}

    loader = wrap(DataLoader(Table(), batch_size=16, shuffle=True, collate_fn=autoencoding))
    noise = torch.Generator().manual_seed(5)
    for epoch in range(4):
        for batch in loader:
            if epoch:
                batch["input"] += torch.randn(batch["input"].shape, generator=noise)
            rec(batch)
    rec(streams())


@script("given", attributes=["records"])
def given_samples_are_the_own_dicts(wrap, rec):
    class Records(Dataset):
        def __init__(self):
            self.records = [{"x": row, "loss": 0.0, "visits": 0} for row in features()]

        def __len__(self):
            return len(self.records)

        def __getitem__(self, index):
            decode()
            return self.records[index]

    data = Records()
    loader = wrap(DataLoader(data, batch_size=16, shuffle=True, collate_fn=lambda samples: samples))
    for epoch in range(6):
        for batch in loader:
            rec(batch)
            for sample in batch if epoch > 1 else ():
                sample["visits"] += 1
                sample["loss"] += float(sample["x"][0])
    rec([data.records[0]["visits"], data.records[255]["loss"]])
    rec(streams())


@script("given")
def given_loader_with_an_iter_of_its_own(wrap, rec):
    class Negating(DataLoader):
        def __iter__(self):
            for inputs, labels in super().__iter__():
                yield -inputs, labels

    passes(wrap(Negating(Table(), batch_size=16, shuffle=True)), rec, 3)


@script("given")
def given_loader_with_an_iterator_of_its_own(wrap, rec):
    class Filtered:
        def __init__(self, batches, change):
            self.batches, self.change = batches, change

        def __iter__(self):
            return self

        def __next__(self):
            return self.change(next(self.batches))

    class GraphLoader(DataLoader):
        def _get_iterator(self):
            return Filtered(super()._get_iterator(), lambda batch: [batch[0] * 3, batch[1]])

    passes(wrap(GraphLoader(Table(), batch_size=16, shuffle=True)), rec, 3)


@script("given", attributes=["collate_fn"])
def given_mixup_off_in_the_last_epochs(wrap, rec):
    def mixup(samples):
        inputs, labels = default_collate(samples)
        return inputs * 0.7 + inputs.flip(0) * 0.3, labels

    loader = wrap(DataLoader(Table(), batch_size=16, shuffle=True, collate_fn=mixup))
    passes(loader, rec, 3)
    loader.collate_fn = default_collate
    passes(loader, rec, 2)


@script("given")
def given_index_and_size_from_the_sampler(wrap, rec):
    class Resizable(Table):
        def __getitem__(self, index):
            size = 64
            if isinstance(index, tuple):
                index, size = index
            decode()
            return self.rows[index][:size], self.labels[index]

    class MultiScale(Sampler):
        def __iter__(self):
            for start in range(0, 256, 16):
                size = random.choice((24, 48, 64))
                yield from ((start + offset, size) for offset in range(16))

        def __len__(self):
            return 256

    passes(wrap(DataLoader(Resizable(), batch_size=16, sampler=MultiScale())), rec, 3)


@script("given", attributes=["weights"])
def given_sampler_that_learns_from_losses(wrap, rec):
    class ByLoss(Sampler):
        def __init__(self):
            self.weights = torch.ones(256)

        def __len__(self):
            return 16

        def __iter__(self):
            for _ in range(16):
                yield torch.multinomial(self.weights, 16).tolist()

    class Indexed(Table):
        def __getitem__(self, index):
            return super().__getitem__(index)[0], index

    sampler = ByLoss()
    loader = wrap(DataLoader(Indexed(), batch_sampler=sampler))
    for _ in range(4):
        for inputs, numbers in loader:
            rec([inputs, numbers])
            sampler.weights[numbers] = inputs.pow(2).mean(1)
    rec(streams())


@script("given")
def given_several_loaders_in_turn_and_in_part(wrap, rec):
    data = Table()
    labeled = wrap(DataLoader(data, batch_size=16, shuffle=True))
    unlabeled = wrap(DataLoader(data, batch_size=16))
    odd = wrap(DataLoader(data, batch_size=9, shuffle=True, drop_last=True))
    for _ in range(3):
        for together in zip(labeled, unlabeled, odd, strict=False):
            rec(together)
        rec(next(iter(labeled)))
        started = iter(odd)
        rec([next(started), next(started)])
        for number, batch in enumerate(unlabeled):
            rec(batch)
            rec(torch.rand(2))
            if number == 4:
                break
    rec(streams())


OFFSET = 0.0


def set_offset(worker):
    global OFFSET
    OFFSET = 1.0 + worker


class Offset(Table):
    def __getitem__(self, index):
        decode()
        return self.rows[index] + (OFFSET if index % 25 == 4 else 0.0), self.labels[index]


class ByWorker(Table):
    def __getitem__(self, index):
        decode()
        worker = get_worker_info()
        shift = worker.id if worker is not None and index % 25 == 4 else 0
        return self.rows[index] + shift, self.labels[index]


@script("given")
def given_global_set_by_worker_init(wrap, rec):
    passes(wrap(DataLoader(Offset(), batch_size=16, shuffle=True, num_workers=2, worker_init_fn=set_offset)), rec, 5)


@script("given")
def given_rows_that_tell_their_worker(wrap, rec):
    passes(wrap(DataLoader(ByWorker(), batch_size=16, shuffle=True, num_workers=2)), rec, 5)
