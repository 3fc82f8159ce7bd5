"""Loaders without workers on several ranks: batches, streams and data sets of one process, each sample read once.

Modules: flatout.ranks.input.loader_division, flatout.ranks.input.share_exchange, flatout.ranks.input.division_trial and
flatout.ranks.input.sample_maker.
"""

import os
import platform
import threading

import numpy
import pytest
import torch
from tests.unit.ranks.in_processes import on_ranks
from tests.unit.ranks.input import data_sets
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, Subset, TensorDataset

from flatout.probe.core.seams import Seams
from flatout.ranks.account import RankAccount
from flatout.ranks.input import loader_division
from flatout.ranks.input.shared_input import SharedInput
from flatout.torch_loader.predicted.backoff import Backoff

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(platform.machine() != "x86_64", reason="ranks of another family exchange otherwise"),
]

FIRST = 2  # batches that every rank makes: one to see what that takes, one to compare


@pytest.fixture(autouse=True)
def always_worth_it(monkeypatch):
    """Divide what takes no time, too, and go on however long that takes."""
    monkeypatch.setattr(loader_division.LoaderDivision, "_not_worth", lambda *_: "")
    monkeypatch.setattr(Backoff, "hit", lambda *_: None)


def stopped(reason):
    raise SystemExit(f"stopped: {reason}")


def on_shared_ranks(tmp_path, act, ranks=2, off=str):
    """Return what `act()` gives on each rank and the accounts of loaders, as pairs."""

    def run(group):
        data_sets.RANK.value = group.rank
        account = RankAccount(str(tmp_path), group.rank, ranks)
        SharedInput(group, account, stopped, off=off).install(Seams())
        return act(), list(account._inputs.values())

    data_sets.forget_reads()
    found = on_ranks(ranks, run)
    assert all(isinstance(one, tuple) for one in found), found
    return found


def same_as_one_process(tmp_path, act, ranks=2):
    """Have `act()` give on each rank what it gives in one process; return the first loader's account."""
    (plain,) = on_ranks(1, lambda _: act())
    assert not isinstance(plain, str), plain
    found = on_shared_ranks(tmp_path, act, ranks)
    for answer, _ in found:
        assert answer == plain
    return found[0][1][0]


@pytest.mark.parametrize(
    ("kind", "ranks"),
    [
        (data_sets.Pure, 2),
        (data_sets.Augmented, 2),
        (data_sets.Augmented, 3),
        (data_sets.Generators, 2),
        (data_sets.Many, 3),
        (data_sets.Lazy, 2),
        (data_sets.Modelled, 2),
    ],
)
def test_each_sample_is_read_by_one_rank(tmp_path, kind, ranks):
    account = same_as_one_process(tmp_path, lambda: data_sets.walk(kind(), epochs=3), ranks)
    assert account.reason == account.hint == ""
    assert (account.batches, account.divided) == (18, 18 - FIRST)
    assert account.shared == 16 * 8
    reads = data_sets.reads(ranks)
    everywhere, tried = FIRST * 8 * ranks, 8
    assert sum(map(sum, reads)) == account.shared + everywhere + tried
    assert sum(reads[0]) == account.own + FIRST * 8 + -(-8 // ranks)
    for read in zip(*reads, strict=True):
        assert sum(read) <= 3 + 2 * ranks  # once an epoch, and twice as often as there are ranks in the first one


def test_without_the_first_batches_nothing_is_read_twice(tmp_path):
    def act():
        data_sets.begin()
        loader = DataLoader(data_sets.Augmented(), batch_size=8)
        list(zip(range(FIRST), loader, strict=False))
        once = data_sets.reads(3)
        list(loader)
        return once, data_sets.reads(3)

    found = on_shared_ranks(tmp_path, act, 3)
    before, after = ([answer[number][rank] for rank, (answer, _) in enumerate(found)] for number in (0, 1))
    second = [[b - a for a, b in zip(*pair, strict=True)] for pair in zip(before, after, strict=True)]
    assert [sum(read) for read in zip(*second, strict=True)] == [1] * data_sets.SAMPLES


@pytest.mark.parametrize(
    "given",
    [
        {"batch_size": 7},
        {"drop_last": True, "batch_size": 7},
        {"shuffle": False},
        {"collate_fn": data_sets.as_it_is},
        {"collate_fn": lambda samples: (torch.rand(2), samples)},
        {"generator": torch.Generator().manual_seed(7)},
        {"most": 4},
    ],
)
def test_however_it_is_walked(tmp_path, given):
    account = same_as_one_process(tmp_path, lambda: data_sets.walk(data_sets.Augmented(), **given))
    assert account.divided == account.batches - FIRST


def test_a_batch_sampler_of_the_scripts_own_that_draws(tmp_path):
    class Batches(BatchSampler):
        def __iter__(self):
            for batch in super().__iter__():
                yield [batch[numpy.random.randint(8)], *batch[1:]]

    def act():
        data = data_sets.Augmented()
        return data_sets.walk(
            data, batch_size=1, shuffle=False, batch_sampler=Batches(RandomSampler(data), 8, drop_last=True)
        )

    account = same_as_one_process(tmp_path, act)
    assert account.divided == 12 - FIRST


def test_loaders_in_turn_and_inside_of_each_other(tmp_path):
    def act():
        data_sets.begin()
        train = DataLoader(data_sets.Augmented(), batch_size=8, shuffle=True)
        other = DataLoader(Subset(data_sets.Pure(), range(30)), batch_size=8)
        found = [(data_sets.content(one), data_sets.content(two)) for one, two in zip(train, other, strict=False)]
        for one in train:
            found += [(data_sets.content(one), data_sets.content(two)) for two in other]
        return found, data_sets.streams()

    account = same_as_one_process(tmp_path, act)
    assert account.divided == account.batches - FIRST


def test_a_data_set_that_the_script_changes_between_passes(tmp_path):
    def told(dataset, epoch):
        dataset.epoch = epoch

    account = same_as_one_process(tmp_path, lambda: data_sets.walk(data_sets.Epochs(), epochs=3, before=told))
    assert account.reason == ""
    assert account.divided == 18 - FIRST - 2 * 2  # of an epoch that begins with a change two


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (data_sets.Varying, "draws another number of random values for each sample"),
        (data_sets.Mixed, "gives other samples when it is read again"),
        (data_sets.Cached, "changes while it is read: Cached.cache"),
    ],
)
def test_what_cannot_be_divided_is_made_by_every_rank(tmp_path, kind, why):
    account = same_as_one_process(tmp_path, lambda: data_sets.walk(kind()))
    assert (account.divided, account.reason) == (0, why)
    reads = data_sets.reads(2)
    assert reads[0] == reads[1] or kind is data_sets.Varying


@pytest.mark.parametrize("kind", [data_sets.LateCached, data_sets.LateCount])
def test_a_change_while_it_is_read_that_comes_late_is_undone_and_every_rank_goes_on_alike(tmp_path, kind):
    account = same_as_one_process(tmp_path, lambda: data_sets.walk(kind(), shuffle=False))
    assert account.divided == 3
    assert account.reason.startswith(f"changes while it is read: {kind.__name__}.")


def test_an_array_that_one_rank_has_filled_is_filled_by_all_before_they_go_on(tmp_path):
    account = same_as_one_process(tmp_path, lambda: data_sets.walk(data_sets.Filled(), shuffle=False))
    assert account.divided == 3
    assert account.reason == "changes while it is read: Filled.kept"


def test_a_change_that_cannot_be_undone_stops_all_ranks(tmp_path):
    def run(group):
        SharedInput(group, RankAccount(str(tmp_path), group.rank, 2), stopped).install(Seams())
        return data_sets.walk(data_sets.Bytes(), shuffle=False)

    for text in on_ranks(2, run):
        assert "stopped: Bytes changes while it is read, and not alike on all ranks" in text


def test_an_error_in_a_sample_is_raised_on_all_ranks(tmp_path):
    account = same_as_one_process(tmp_path, lambda: data_sets.walk(data_sets.Failing()))
    assert account.reason == ""
    assert account.divided > 2


def test_what_samples_print_and_write_is_that_of_one_process_on_each_rank(tmp_path):
    def act():
        path = tmp_path / f"{os.getpid()}.txt"
        walked = data_sets.walk(data_sets.Writing(path), shuffle=False)
        return walked, path.read_text()

    account = same_as_one_process(tmp_path, act)
    assert account.divided == 1
    assert account.reason.startswith("cannot be read by shares: writes to")

    def printed():
        import contextlib
        import io

        with contextlib.redirect_stdout(io.StringIO()) as out:
            walked = data_sets.walk(data_sets.Printing(), shuffle=False)
        return walked, out.getvalue()

    account = same_as_one_process(tmp_path, printed)
    assert account.divided > 3
    assert account.hint == "prints while it is read"


def test_samples_that_the_data_set_holds_itself(tmp_path):
    account = same_as_one_process(
        tmp_path, lambda: data_sets.walk(data_sets.Holding(), epochs=3, collate_fn=data_sets.doubled)
    )
    assert account.reason == "hands out what it holds, to a collate function of the script's own"
    account = same_as_one_process(tmp_path, lambda: data_sets.walk(data_sets.Holding()))
    assert account.divided == 12 - FIRST


def test_iterables_and_single_samples_are_left_to_every_rank(tmp_path):
    def act():
        data_sets.begin()
        stream = DataLoader(data_sets.Stream(), batch_size=2)
        alone = DataLoader(data_sets.Pure(), batch_size=None)
        few = DataLoader(data_sets.Pure(), batch_size=1)
        return [
            list(map(data_sets.content, stream)),
            list(map(data_sets.content, alone)),
            list(map(data_sets.content, few)),
        ]

    found = on_shared_ranks(tmp_path, act)
    assert found[0][0] == found[1][0]
    stream, alone, few = found[0][1]
    assert (stream.reason, alone.reason) == ("is an iterable data set", "gives its batches itself (batch_size=None)")
    assert few.divided == 0
    assert data_sets.reads(2) == [[2] * data_sets.SAMPLES] * 2


def test_an_iterator_that_another_thread_draws_from_is_left_to_every_rank(tmp_path):
    def act():
        found, iterator = [], iter(DataLoader(data_sets.Pure(), batch_size=8))
        thread = threading.Thread(target=lambda: found.extend(map(data_sets.content, iterator)))
        thread.start()
        thread.join()
        return found

    account = same_as_one_process(tmp_path, act)
    assert (account.divided, account.hint) == (0, "is read by another thread")


def test_a_script_that_distributes_itself_has_its_loaders_to_itself(tmp_path):
    def act():
        own = range(data_sets.RANK.value, data_sets.SAMPLES, 2)
        return [data_sets.content(batch) for batch in DataLoader(Subset(data_sets.Pure(), own), batch_size=8)]

    found = on_shared_ranks(tmp_path, act, off=lambda: "the script distributes itself")
    assert found[0][0] != found[1][0]


def test_what_takes_no_time_is_made_by_every_rank(tmp_path, monkeypatch):
    monkeypatch.undo()

    def act():
        data = TensorDataset(torch.arange(48.0))
        return [data_sets.content(batch) for _ in range(2) for batch in DataLoader(data, batch_size=8)]

    account = same_as_one_process(tmp_path, act)
    assert account.divided == 0
    assert account.reason.startswith("makes a batch in ")
    assert account.reason.endswith("less than handing it over is worth")


def test_passes_that_end_before_anything_is_gained(tmp_path):
    def short(epochs):
        data = Subset(data_sets.Augmented(), range(20))
        return data_sets.walk(data, epochs)

    account = same_as_one_process(tmp_path, lambda: short(2))
    assert (account.batches, account.divided) == (6, 0)
    assert "3 batches a pass" in account.hint
    account = same_as_one_process(tmp_path, lambda: short(4))
    assert (account.batches, account.divided) == (12, 12 - 6 - FIRST)


def test_ranks_that_ask_for_other_samples_are_left_alone(tmp_path):
    def act():
        own = list(range(data_sets.RANK.value, 48))
        return [data_sets.content(batch) for batch in DataLoader(data_sets.Pure(), batch_size=8, sampler=own)]

    found = on_shared_ranks(tmp_path, act)
    assert found[0][0] != found[1][0]
    assert found[0][1][0].reason == "is asked for other samples by each rank"


def test_ranks_whose_streams_stand_elsewhere_are_left_alone(tmp_path):
    def act():
        data_sets.begin()
        found, loader = [], DataLoader(data_sets.Augmented(), batch_size=8)
        for number, batch in enumerate(loader):
            found.append(data_sets.content(batch))
            torch.rand(data_sets.RANK.value if number == 3 else 0)
        return found

    found = on_shared_ranks(tmp_path, act)
    assert found[0][0][:4] == found[1][0][:4]
    assert found[0][0][4] != found[1][0][4]
    assert found[0][1][0].reason == "is read in another state of the random streams by each rank"


def test_ranks_at_other_loaders_are_stopped(tmp_path):
    def run(group):
        group.parted = lambda texts: (_ for _ in ()).throw(SystemExit("; ".join(texts)))
        SharedInput(group, RankAccount(str(tmp_path), group.rank, 2), stopped).install(Seams())
        list(DataLoader([data_sets.Pure, data_sets.Augmented][group.rank](), batch_size=8))

    for text in on_ranks(2, run):
        assert "batch 1 of Pure, 8 samples; batch 1 of Augmented, 8 samples" in text


def test_a_rank_that_dies_while_it_makes_samples_leaves_no_other_waiting(tmp_path):
    class Deadly(data_sets.Pure):
        def make(self, index):
            if data_sets.RANK.value == 1 and index == 31:
                os._exit(3)
            return super().make(index)

    def run(group):
        data_sets.RANK.value = group.rank
        SharedInput(group, RankAccount(str(tmp_path), group.rank, 2), stopped).install(Seams())
        return data_sets.walk(Deadly(), shuffle=False)

    alive, dead = on_ranks(2, run)
    assert dead is None
    assert "RuntimeError: rank 1 has gone" in alive[0]
