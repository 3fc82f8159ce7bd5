"""Kinds of change that were found to pass unseen: what a data set holds changes. See `given_loader_changes.py`, too."""

import threading

import numpy as np
import torch
from recording import digest, streams
from script_list import decode, features, script
from torch.utils.data import DataLoader, Dataset, TensorDataset


class Table(Dataset):
    """Rows with labels; what is special is said by its subclasses."""

    def __init__(self):
        self.rows = features()
        self.labels = [number % 10 for number in range(len(self.rows))]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        decode()
        return self.rows[index], self.labels[index]


class Curriculum(Table):
    difficulty = 1.0

    def __init__(self):
        super().__init__()
        self.difficulty = 1.0

    def __getitem__(self, index):
        decode()
        return self.rows[index] * self.difficulty, self.labels[index]


def passes(loader, rec, num):
    for _ in range(num):
        for batch in loader:
            rec(batch)
    rec(streams())


@script("given", attributes=["difficulty"])
def given_difficulty_in_mid_pass(wrap, rec):
    data = Curriculum()
    loader = wrap(DataLoader(data, batch_size=16, shuffle=True))
    step = 0
    for _ in range(5):
        for rows, labels in loader:
            rec([rows, labels])
            step += 1
            if step == 55:
                data.difficulty = 0.5
    rec(streams())


@script("given", attributes=["difficulty"])
def given_epoch_told_after_iter(wrap, rec):
    data = Curriculum()
    loader = wrap(DataLoader(data, batch_size=16, shuffle=True))
    for epoch in range(6):
        iterator = iter(loader)
        data.difficulty = 1.0 if epoch < 3 else 0.25
        while (batch := next(iterator, None)) is not None:
            rec(batch)
    rec(streams())


@script("given", attributes=["tensors"])
def given_tensors_of_a_tensor_dataset(wrap, rec):
    inputs, targets = features(), torch.arange(256)
    data = TensorDataset(inputs, targets)
    loader = wrap(DataLoader(data, batch_size=16, shuffle=True))
    for epoch in range(4):
        for number, batch in enumerate(loader):
            rec(batch)
            if (epoch, number) == (1, 6):
                inputs[90:].add_(1)
            if (epoch, number) == (2, 9):
                data.tensors = (inputs.neg(), targets)
    rec(streams())


@script("given", attributes=["by_name"])
def given_labels_by_name(wrap, rec):
    class Pictures(Table):
        def __init__(self):
            super().__init__()
            self.names = [f"{number:05}.png" for number in range(256)]
            self.by_name = dict(zip(self.names, self.labels, strict=True))

        def __getitem__(self, index):
            decode()
            return self.rows[index], self.by_name[self.names[index]]

    data = Pictures()
    loader = wrap(DataLoader(data, batch_size=16, shuffle=True))
    passes(loader, rec, 3)
    data.by_name.update({"00099.png": 77, "00180.png": 77, "00233.png": 77})
    passes(loader, rec, 3)


@script("given", attributes=["annotations", "category"])
def given_annotations_in_dicts(wrap, rec):
    class Annotated(Table):
        def __init__(self):
            super().__init__()
            self.annotations = [{"row": number, "category": number % 7} for number in range(256)]

        def __getitem__(self, index):
            decode()
            entry = self.annotations[index]
            return {"x": self.rows[entry["row"]], "y": entry["category"]}

    data = Annotated()
    loader = wrap(DataLoader(data, batch_size=16, shuffle=True))
    passes(loader, rec, 3)
    for number in (90, 141, 200, 201, 250):
        data.annotations[number]["category"] = 88
    passes(loader, rec, 3)


@script("given", attributes=["target", "rows"])
def given_dot_data_and_dot_numpy(wrap, rec):
    class Tensors(Table):
        def __init__(self):
            super().__init__()
            self.target = torch.tensor(self.labels)

        def __getitem__(self, index):
            decode()
            return self.rows[index], self.target[index]

    data = Tensors()
    loader = wrap(DataLoader(data, batch_size=16, shuffle=True))
    passes(loader, rec, 3)
    data.target.data[100:250:31] = 55
    passes(loader, rec, 1)
    data.rows.numpy()[100:250:29] *= 2
    passes(loader, rec, 2)


@script("given", attributes=["labels", "weights"])
def given_labels_in_a_list_and_an_array(wrap, rec):
    class Weighted(Table):
        def __init__(self):
            super().__init__()
            self.weights = np.linspace(0, 1, 256)

        def __getitem__(self, index):
            decode()
            return self.rows[index], self.labels[index], self.weights[index]

    data = Weighted()
    loader = wrap(DataLoader(data, batch_size=16, shuffle=True))
    for epoch in range(6):
        if epoch == 3:
            data.labels[170] = 99
        elif epoch == 4:
            data.weights[171] = 2.0
        passes(loader, rec, 1)


@script("given", attributes=["seen"])
def given_visits_in_an_array(wrap, rec):
    class Visited(Table):
        def __init__(self):
            super().__init__()
            self.seen = np.zeros(256, dtype=np.int32)

        def __getitem__(self, index):
            decode()
            self.seen[index] += 1
            return self.rows[index], index

    data = Visited()
    loader = wrap(DataLoader(data, batch_size=16, shuffle=True))
    for _ in range(5):
        passes(loader, rec, 1)
        rec(data.seen)


@script("given", attributes=["step"])
def given_step_in_a_tensor(wrap, rec):
    class Stepped(Table):
        def __init__(self):
            super().__init__()
            self.step = torch.zeros((), dtype=torch.float64)

        def __getitem__(self, index):
            self.step.add_(1)
            return self.rows[index] + self.step / 512, self.labels[index]

    data = Stepped()
    passes(wrap(DataLoader(data, batch_size=16, shuffle=True)), rec, 3)
    rec(data.step)


class Clock:
    __slots__ = ("ticks",)

    def __init__(self):
        self.ticks = 0


@script("given", attributes=["ticks"])
def given_counter_in_slots(wrap, rec):
    class Ticking(Table):
        def __init__(self):
            super().__init__()
            self.clock = Clock()

        def __getitem__(self, index):
            self.clock.ticks += 1
            return self.rows[index] + self.clock.ticks / 512, self.labels[index]

    data = Ticking()
    passes(wrap(DataLoader(data, batch_size=16, shuffle=True)), rec, 3)
    rec(data.clock.ticks)


@script("given", attributes=["calls", "total", "stats"])
def given_counters_of_three_kinds(wrap, rec):
    class Counting(Table):
        total = 0

        def __init__(self):
            super().__init__()
            self.calls = 0
            self.stats = {"reads": [0]}

        def __getitem__(self, index):
            self.calls += 1
            self.stats["reads"][0] += 3
            Counting.total += 1
            return self.rows[index] + (self.calls + self.stats["reads"][0] - Counting.total) / 512, self.labels[index]

    data = Counting()
    passes(wrap(DataLoader(data, batch_size=16, shuffle=True)), rec, 3)
    rec([data.calls, data.stats, Counting.total])


@script("given", attributes=["replay"])
def given_filled_by_a_thread(wrap, rec):
    class Buffer(Dataset):
        def __init__(self):
            self.replay = [torch.full((64,), float(number)) for number in range(100)]

        def __len__(self):
            return len(self.replay)

        def __getitem__(self, index):
            decode()
            return self.replay[index], index

    data = Buffer()

    def play():
        for number in range(500):
            data.replay.append(torch.full((64,), 1000.0 + number))
            pause.wait(0.001)

    pause = threading.Event()
    loader = wrap(DataLoader(data, batch_size=10, sampler=list(range(100))))
    actor = threading.Thread(target=play)
    actor.start()
    passes(loader, rec, 5)
    actor.join()
    rec([len(data.replay), digest(data.replay[-1])])


@script("given")
def given_config_that_raises_key_error(wrap, rec):
    class Options:
        __slots__ = ("entries",)

        def __init__(self, **entries):
            self.entries = entries

        def __getattr__(self, name):
            return self.entries[name]

    class Configured(Table):
        def __init__(self):
            super().__init__()
            self.options = Options(gain=2.0, bias=0.5)

        def __getitem__(self, index):
            decode()
            return self.rows[index] * self.options.gain + self.options.bias, self.labels[index]

    passes(wrap(DataLoader(Configured(), batch_size=16, shuffle=True)), rec, 3)
