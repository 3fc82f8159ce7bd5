"""Streams of Hugging Face `datasets` read ahead: batches, order, random streams and `state_dict()` as ever.

Modules: flatout.torch_loader.streamed.stream_place, flatout.torch_loader.streamed.stream_origin.
"""

import copy
import itertools
import json
import pickle
import random

import numpy
import pytest
import torch
from tests.unit.fixes.training import under
from tests.unit.torch_loader.streamed.test_stream_pass import begin, both, step
from torch.utils.data import DataLoader, IterableDataset

datasets = pytest.importorskip("datasets")
distributed = pytest.importorskip("datasets.distributed")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # within the package
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore:This DataLoader will create 2 worker"),  # said where there is one core
]

NUMBER = 72


@pytest.fixture(autouse=True)
def on_any_machine(monkeypatch):
    """Take what another process reads, however quick a sample is and however busy the machine."""
    datasets.disable_progress_bars()
    monkeypatch.setattr("flatout.torch_loader.streamed.streamed_loader._LONGEST_WAIT", float("inf"))
    monkeypatch.setattr("flatout.torch_loader.streamed.stream_pass._LAG", 10_000)
    monkeypatch.setattr("flatout.torch_loader.streamed.stream_pass._WORTH_S", 0)


def rows(first=0, number=NUMBER):
    return datasets.Dataset.from_dict(
        {"x": [[each, each + 1.5] for each in range(first, first + number)], "n": list(range(first, first + number))}
    )


def stream(shards=4, first=0, number=NUMBER):
    return rows(first, number).to_iterable_dataset(num_shards=shards)


def doubled(row):
    return {"y": 2.0 * row["n"]}


def drawn(row):
    return {"y": row["n"] + random.random() + float(numpy.random.rand()), "z": float(torch.rand(()))}


def summed(batch):
    return {"y": [sum(batch["n"])] * len(batch["n"])}


def even(row):
    return row["n"] % 2 == 0


def kept_at_random(row):
    return random.random() < 0.7


def generated(first=0):
    for number in range(first, first + NUMBER):
        yield {"x": float(number), "n": number}


def of_shards(shards):
    for shard in shards:
        for number in range(20):
            yield {"x": float(number + shard), "n": number}


def drawing():
    order = list(range(NUMBER))
    random.shuffle(order)
    for number in order:
        yield {"x": number + float(torch.rand(())), "n": number}


def uneven():
    for number in range(NUMBER):
        yield {"text": "a" * (number % 5), "none": None, "tokens": list(range(number % 7))}


def opening(names):
    for name in names:
        with open(name) as file:
            for line in file:
                yield {"n": int(line) + random.random()}


def without_end():
    for number in itertools.count():
        yield {"n": number + random.random()}


def failing():
    for row in generated():
        if row["n"] == 43:
            raise KeyError("sample 43")
        yield row


class Packed(IterableDataset):
    """Tokens of a stream, joined to blocks of one length, as in language modelling."""

    def __init__(self, source):
        self.source = source

    def __iter__(self):
        held = []
        for row in self.source:
            held += [row["n"], row["n"] + 1, -1]
            while len(held) >= 8:
                yield torch.tensor(held[:8])
                held = held[8:]


def of_files(folder, kind):
    if kind == "parquet":
        for number in range(2):
            rows(100 * number, 40).to_parquet(folder / f"{number}.parquet")
    else:
        for number in range(2):
            lines = [json.dumps({"n": each, "text": str(each)}) for each in range(40)]
            (folder / f"{number}.json").write_text("\n".join(lines))
    files = [str(folder / f"{number}.{kind}") for number in range(2)]
    return datasets.load_dataset(kind, data_files=files, split="train", streaming=True, cache_dir=str(folder / "cache"))


def lines(folder):
    for number in range(3):
        (folder / f"{number}.txt").write_text("\n".join(map(str, range(30))))
    return [str(folder / f"{number}.txt") for number in range(3)]


def made(generator, **arguments):
    return datasets.IterableDataset.from_generator(generator, gen_kwargs=arguments or None)


STREAMS = {
    "rows": lambda _: stream(),
    "rows, one shard": lambda _: stream(1),
    "torch": lambda _: stream().with_format("torch"),
    "numpy": lambda _: stream().with_format("numpy"),
    "arrow, mapped": lambda _: stream().map(doubled).with_format("torch"),
    "draws": lambda _: stream().map(drawn),
    "draws, filtered": lambda _: stream().filter(kept_at_random).map(drawn).with_format("torch"),
    "of batches": lambda _: stream().map(summed, batched=True, batch_size=8),
    "fewer columns": lambda _: stream().map(doubled, remove_columns=["x"]).rename_column("n", "m"),
    "filtered": lambda _: stream().filter(even),
    "a shuffle buffer": lambda _: stream().shuffle(seed=3, buffer_size=20),
    "a shuffle buffer, draws": lambda _: stream().shuffle(seed=3, buffer_size=20).map(drawn).with_format("torch"),
    "taken, skipped": lambda _: stream().skip(5).take(60),
    "repeated": lambda _: stream(2, 0, 30).repeat(3),
    "repeated, mapped": lambda _: stream(2, 0, 30).map(drawn).repeat(3),
    "joined": lambda _: datasets.concatenate_datasets([stream(), stream(2, 200)]),
    "interleaved": lambda _: datasets.interleave_datasets([stream(), stream(2, 200)]),
    "interleaved at random": lambda _: datasets.interleave_datasets(
        [stream(), stream(2, 200)], probabilities=[0.3, 0.7], seed=5
    ),
    "interleaved till all end": lambda _: datasets.interleave_datasets(
        [stream(), stream(2, 200, 20)], stopping_strategy="all_exhausted"
    ),
    "of a node": lambda _: distributed.split_dataset_by_node(stream(), rank=1, world_size=2),
    "batches": lambda _: stream().batch(2).with_format("torch"),
    "a generator": lambda _: made(generated),
    "a generator of shards": lambda _: made(of_shards, shards=[0, 100, 200, 300]).shuffle(seed=1, buffer_size=9),
    "a generator that draws": lambda _: made(drawing),
    "a generator of files": lambda folder: made(opening, names=lines(folder)),
    "uneven": lambda _: made(uneven),
    "Parquet": lambda folder: of_files(folder, "parquet").map(drawn),
    "Parquet, torch": lambda folder: of_files(folder, "parquet").with_format("torch"),
    "JSON": lambda folder: of_files(folder, "json").shuffle(seed=2, buffer_size=10),
    "packed": lambda _: Packed(stream().map(doubled)),
    "packed, shuffled": lambda _: Packed(stream().shuffle(seed=1, buffer_size=30)),
}


def told(dataset):
    """Return where a stream is, in each way that a script can learn it."""
    source = getattr(dataset, "source", dataset)
    return source.state_dict(), pickle.loads(pickle.dumps(source._state_dict)), copy.copy(source).state_dict()


def walk(dataset, epochs=3, stop_at=None, asked=(2, 9, 10), **options):
    source, seen = getattr(dataset, "source", dataset), []
    loader = DataLoader(dataset, **({"batch_size": 4, "collate_fn": list} | options))
    for epoch in range(epochs):
        source.set_epoch(epoch)
        for number, batch in enumerate(loader):
            seen.append((batch, step(0.0), told(dataset) if number in asked else None))
            if number == stop_at:
                break
        seen.append((told(dataset), random.random()))
    return seen


@pytest.mark.parametrize("name", STREAMS)
def test_batches_are_read_ahead_and_the_stream_says_where_the_script_is(name, tmp_path):
    assert both(lambda: walk(STREAMS[name](tmp_path))) > 10


@pytest.mark.parametrize("name", ["torch", "a shuffle buffer, draws", "repeated, mapped", "a generator that draws"])
def test_a_pass_that_is_broken_off_leaves_the_stream_where_the_script_was(name, tmp_path):
    assert both(lambda: walk(STREAMS[name](tmp_path), stop_at=11)) > 10


def test_a_part_of_a_pass(tmp_path):
    def part():
        dataset = made(without_end)
        loader = DataLoader(dataset, 4)
        return [(batch, step(0.0)) for _ in range(3) for batch in itertools.islice(loader, 14)], told(dataset)

    assert both(part) > 20


def test_going_on_from_where_a_pass_was_left(tmp_path):
    def resumed():
        dataset, seen = stream().map(drawn).with_format("torch"), []
        for _ in range(3):
            seen.append(walk(dataset, 1, stop_at=7, asked=()))
            state = dataset.state_dict()
            dataset.load_state_dict(state)
            seen.append(walk(dataset, 1, asked=(3,)))
        return seen

    assert both(resumed) > 10


def test_an_error_comes_at_its_batch_and_the_stream_says_where():
    def failed():
        dataset, seen = made(failing), []
        for _ in range(2):
            batches = iter(DataLoader(dataset, 4))
            while True:
                try:
                    seen.append((next(batches), step(0.0)))
                except KeyError as error:
                    seen.append((*error.args, told(dataset)))
                except StopIteration:
                    break
        return seen

    assert both(failed) > 2


class AskingForItsEpoch(Packed):
    """Tells each batch of the epoch, which the script may set at any time."""

    def __iter__(self):
        for row in self.source:
            yield row["n"], self.source.epoch


def test_code_that_asks_for_the_epoch_is_not_given_an_old_one():
    from flatout.errors import ChangedTooLate

    dataset = AskingForItsEpoch(stream())
    with under("loader-workers", workers=2) as process, pytest.raises(ChangedTooLate, match="IterableDataset"):
        for _ in DataLoader(dataset, 4):
            if process.site.hits.get("DataLoader", 0) > 3:
                dataset.source.set_epoch(7)


@pytest.mark.parametrize(
    "disturb",
    [
        lambda dataset: [next(iter(dataset))],
        lambda dataset: list(dataset.take(3)),
        lambda dataset: list(dataset.map(doubled))[:5],
        lambda dataset: [*DataLoader(dataset, 8, collate_fn=list)],
        lambda dataset: [*DataLoader(dataset.filter(even), 8, collate_fn=list)],
        lambda dataset: [*DataLoader(stream(2, 300), 8, collate_fn=list)],
        lambda dataset: dataset.set_epoch(7),
        lambda dataset: dataset.load_state_dict(dataset.state_dict()),
    ],
    ids=[
        "begun again",
        "its first",
        "mapped",
        "another loader",
        "of the same parts",
        "another stream",
        "told of the epoch",
        "told where to begin",
    ],
)
def test_a_stream_that_is_read_elsewhere_in_the_middle_of_a_pass(disturb):
    def disturbed():
        dataset, seen = stream().map(drawn), []
        loader = DataLoader(dataset, 4, collate_fn=list)
        for epoch in range(2):
            dataset.set_epoch(epoch)
            for number, batch in enumerate(loader):
                seen.append((batch, step(0.0)))
                if number == 9:
                    seen.append((disturb(dataset), told(dataset)))
            seen.append(told(dataset))
        return seen

    assert both(disturbed) > 5


def test_another_stream_read_in_turn_disturbs_nobody():
    def in_turn():
        one, other = stream().map(drawn), made(drawing)
        loaders = DataLoader(one, 4, collate_fn=list), DataLoader(other, 4)
        seen = [(*pair, step(0.0)) for _ in range(3) for pair in zip(*loaders, strict=True)]
        return seen, told(one), told(other)

    assert both(in_turn) > 20


NUMBERS = []


def counted(row):
    NUMBERS.append(row["n"])
    return row


def ending():
    number = 0
    try:
        for row in generated():
            number += 1
            yield row
    finally:
        NUMBERS.append(number)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: stream().map(counted), "changes while it is read"),
        (lambda: made(ending), "runs code where its pass ends (ending)"),
    ],
)
def test_what_is_seen_elsewhere_stays_here(make, reason):
    def walked():
        NUMBERS.clear()
        return walk(make(), stop_at=11), [*NUMBERS]

    both(walked, stands_back=reason)


def test_a_place_that_somebody_writes_by_hand_stops_the_training_or_is_seen_in_time():
    from flatout.errors import ChangedTooLate

    dataset = stream().map(drawn)
    with under("loader-workers", workers=2) as process, pytest.raises(ChangedTooLate, match="_state_dict"):
        for _ in DataLoader(dataset, 4, collate_fn=list):
            if process.site.hits.get("DataLoader", 0) > 3:
                dataset._state_dict["epoch"] = 7


@pytest.mark.parametrize("fix", ["loader-workers", "persistent-workers"])
@pytest.mark.parametrize("name", ["torch", "a shuffle buffer, draws", "a generator of shards"])
def test_shards_that_workers_divide_stay_theirs(name, fix, tmp_path):
    def walked():
        begin()
        dataset = STREAMS[name](tmp_path)
        return walk(dataset, num_workers=2, asked=())

    plain = walked()
    with under(fix):
        assert _same(walked(), plain)


def _same(one, other):
    from flatout.watch.dataset_state import same

    return same(one, other)
