"""Scripts whose data set stays as it is, in many styles: these should be served from memory, and come out the same."""

import collections
import functools
import threading
import zlib
from dataclasses import dataclass

import numpy as np
import torch
from recording import streams
from script_list import decode, features, script
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset, TensorDataset, random_split

still = functools.partial(script, changes=False)


def train(wrap, rec, data, epochs=4, after=lambda step: None, **options):
    """Train a small model, with whatever the script does after each step."""
    options = {"batch_size": 16, "shuffle": True, **options}
    loader = wrap(DataLoader(data, **options))
    step = 0
    for _ in range(epochs):
        for batch in loader:
            rec(batch)
            step += 1
            after(step)
    rec(streams())


class Archive(Dataset):
    """Compressed records in a list."""

    def __init__(self, num=256):
        rows = features(num).numpy()
        self.records = [zlib.compress(row.tobytes()) for row in rows]
        self.labels = [number % 10 for number in range(num)]

    def __len__(self):
        return len(self.records)

    def __getitem__(self, index):
        row = np.frombuffer(zlib.decompress(self.records[index]), dtype=np.float32)
        return torch.tensor(row), self.labels[index]


@still("nothing changes")
def still_archive(wrap, rec):
    train(wrap, rec, Archive())


@still("nothing changes")
def still_archive_with_workers(wrap, rec):
    train(wrap, rec, Archive(), num_workers=2)


@still("nothing changes")
def still_archive_with_workers_that_stay(wrap, rec):
    train(wrap, rec, Archive(), num_workers=2, persistent_workers=True)


@still("nothing changes")
def still_while_the_model_learns(wrap, rec):
    model = torch.nn.Sequential(
        torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Dropout(0.1), torch.nn.Linear(32, 10)
    )
    optimizer = torch.optim.Adam(model.parameters())
    loader = wrap(DataLoader(Archive(), batch_size=32, shuffle=True))
    for _ in range(5):
        for x, y in loader:
            loss = torch.nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            rec(loss)
    rec(dict(model.state_dict()))
    rec(streams())


@still("nothing changes")
def still_with_counts_in_the_trainer(wrap, rec):
    class Trainer:
        def __init__(self, data):
            self.data, self.step, self.history, self.best = data, 0, [], {"loss": 9.0}

        def tick(self, step):
            self.step = step
            self.history.append({"step": step, "loss": 1 / step})
            self.best["loss"] = min(self.best["loss"], 1 / step)

    trainer = Trainer(Archive())
    train(wrap, rec, trainer.data, after=trainer.tick)
    rec([trainer.step, len(trainer.history)])


@still("nothing changes")
def still_with_a_counter_beside_the_data(wrap, rec):
    """An attribute of the data set that no sample reads."""
    data = Archive()
    data.steps_trained = 0

    def note(step):
        data.steps_trained = step

    train(wrap, rec, data, after=note)
    rec(data.steps_trained)


@still("nothing changes")
def still_with_references_to_the_parts(wrap, rec):
    data = Archive()
    records, labels, everything = data.records, data.labels, [vars(data), list(data.labels)]
    train(wrap, rec, data, after=lambda step: everything.append(len(records) + labels[step % 256]))


@still("nothing changes")
def still_with_much_garbage(wrap, rec):
    kept = collections.deque(maxlen=50)

    def allocate(step):
        kept.append([np.ones(20_000), torch.zeros(5000), {i: str(i) for i in range(2000)}, bytes(100_000)])

    train(wrap, rec, Archive(), after=allocate)


@still("nothing changes")
def still_with_a_thread_beside(wrap, rec):
    stop, beats = threading.Event(), []

    def heartbeat():
        while not stop.wait(0.01):
            beats.append(len(beats))

    thread = threading.Thread(target=heartbeat)
    thread.start()
    try:
        train(wrap, rec, Archive())
    finally:
        stop.set()
        thread.join()


@still("nothing changes")
def still_large_list_of_dicts(wrap, rec):
    class Captions(Dataset):
        def __init__(self, num=20_000):
            self.entries = [{"id": i, "caption": f"picture {i}", "size": (i % 50, 40)} for i in range(num)]

        def __len__(self):
            return len(self.entries)

        def __getitem__(self, i):
            entry = self.entries[i]
            decode(2000)
            return {"id": entry["id"], "length": len(entry["caption"]), "width": entry["size"][0]}

    train(wrap, rec, Subset(Captions(), range(0, 20_000, 40)), batch_size=25)


@still("nothing changes")
def still_list_of_tensors(wrap, rec):
    class Sequences(Dataset):
        def __init__(self):
            self.items = [torch.full((12,), i) for i in range(3000)]

        def __len__(self):
            return len(self.items)

        def __getitem__(self, i):
            decode(1000)
            return self.items[i][:-1], self.items[i][1:]

    train(wrap, rec, Sequences(), batch_size=100, epochs=3)


@dataclass(frozen=True)
class Example:
    text: str
    label: int


@still("nothing changes")
def still_list_of_frozen_examples(wrap, rec):
    class Texts(Dataset):
        def __init__(self):
            self.examples = [Example("the cat sat on mat " * (1 + i % 3), i % 2) for i in range(600)]
            self.vocabulary = {word: i for i, word in enumerate(["the", "cat", "sat", "on", "mat"])}

        def __len__(self):
            return len(self.examples)

        def __getitem__(self, i):
            example = self.examples[i]
            ids = [self.vocabulary[word] for word in example.text.split()][:5]
            return torch.tensor(ids), example.label

    train(wrap, rec, Texts(), batch_size=30)


@still("nothing changes")
def still_large_list_of_objects(wrap, rec):
    class Node:
        def __init__(self, i):
            self.position, self.name, self.links = (i, i + 1), f"n{i}", [i - 1, i + 1]

    class Graphs(Dataset):
        def __init__(self):
            self.nodes = [Node(i) for i in range(8000)]

        def __len__(self):
            return 800

        def __getitem__(self, i):
            decode(1000)
            return torch.tensor([sum(node.links) + node.position[0] for node in self.nodes[i * 10 : i * 10 + 10]])

    train(wrap, rec, Graphs(), batch_size=40)


@still("nothing changes")
def still_tensors(wrap, rec):
    train(wrap, rec, TensorDataset(features(2000), torch.arange(2000)), batch_size=50)


@still("nothing changes")
def still_split_for_validation(wrap, rec):
    train_part, valid_part = random_split(Archive(), [200, 56], generator=torch.Generator().manual_seed(0))
    loader = wrap(DataLoader(train_part, batch_size=20, shuffle=True, drop_last=True))
    check = wrap(DataLoader(valid_part, batch_size=28))
    for _ in range(4):
        for batch in loader:
            rec(batch)
        for batch in check:
            rec(batch)
    rec(streams())


@still("nothing changes")
def still_concatenated(wrap, rec):
    train(wrap, rec, ConcatDataset([Archive(100), Archive(60)]))


@still("nothing changes")
def still_loader_made_for_each_epoch(wrap, rec):
    data = Archive()
    for _ in range(5):
        for batch in wrap(DataLoader(data, batch_size=16, shuffle=True)):
            rec(batch)
    rec(streams())


@still("nothing changes")
def still_closures(wrap, rec):
    def make(table, scale):
        class Closed(Dataset):
            def __len__(self):
                return len(table)

            def __getitem__(self, i):
                decode()
                return table[i] * scale

        return Closed()

    train(wrap, rec, make(features(), 0.5))
