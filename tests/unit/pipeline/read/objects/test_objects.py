"""`flatout.objects`: a data set like any other, in any process."""

import copy
import gc
import multiprocessing
import pickle

import pytest
import torch
from benchmarks.object_server import ObjectServer
from tests.unit.pipeline.read.objects.served import held, options_of, put
from torch.utils.data import DataLoader, Subset

import flatout
from flatout.errors import BadObject

pytest.importorskip("obstore")


def first_byte(data):
    return torch.tensor(data[0])


class Counted:
    """A transform that has a state of its own."""

    def __init__(self):
        self.number = 0

    def __call__(self, data):
        self.number += 1
        return len(data)


def test_a_sample_is_the_bytes_or_what_is_made_of_them(server, options):
    urls = put(server, 12)
    plain = flatout.objects(urls, storage_options=options)
    assert len(plain) == 12 and plain.urls == tuple(urls)
    assert plain[3] == plain[-9] == held(server, urls[3]) and type(plain[3]) is bytes
    assert list(plain) == [held(server, url) for url in urls]
    made = flatout.objects(urls, first_byte, labels=[f"label {at}" for at in range(12)], storage_options=options)
    assert made[5] == (torch.tensor(5), "label 5")
    batches = list(DataLoader(made, batch_size=5))
    assert torch.equal(torch.cat([batch for batch, _ in batches]), torch.arange(12))
    assert [label for _, labels in batches for label in labels] == [f"label {at}" for at in range(12)]
    for wrong in (12, -13):
        with pytest.raises(IndexError):
            plain[wrong]
        with pytest.raises(IndexError):
            plain.__getitems__([0, wrong])
    assert repr(plain).startswith("<12 objects, the first s3://bucket/photos/000.bin; ")


def test_subsets_and_samplers_take_it_as_it_is(server, options):
    urls = put(server, 12)
    some = Subset(flatout.objects(urls, first_byte, storage_options=options), [7, 1, 3])
    assert [batch.tolist() for batch in DataLoader(some, batch_size=2)] == [[7, 1], [3]]
    assert len(server.asked) == 3


@pytest.mark.slow
@pytest.mark.parametrize("context", ["fork", "spawn"])
@pytest.mark.parametrize("asked_before", [False, True])
def test_workers_read_for_themselves_and_share_what_is_kept(server, options, context, asked_before):
    urls = put(server, 40)
    made = flatout.objects(urls, first_byte, storage_options=options)
    if asked_before:
        made[0]
    for _ in range(2):
        loader = DataLoader(made, batch_size=8, num_workers=2, multiprocessing_context=context)
        assert torch.cat(list(loader)).tolist() == list(range(40))
    assert len(server.asked) == 40


def test_an_error_of_a_worker_is_the_one_of_the_object(server, options):
    urls = put(server, 4)
    del server.objects["/bucket/photos/002.bin"]
    with pytest.raises(BadObject, match=r"s3://bucket/photos/002\.bin is missing"):
        list(DataLoader(flatout.objects(urls, storage_options=options), num_workers=1, batch_size=4))
    gc.collect()  # torch's frames refer to the error, and to the worker


def test_copies_and_pickles_are_the_same_data_set(server, options):
    urls = put(server, 4)
    made = flatout.objects(urls, Counted(), labels=[0, 1, 2, 3], storage_options=options)
    for another in (copy.copy(made), copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert another.transform is not made.transform
        assert another[2] == made[2] and another.urls == made.urls
        assert another.transform.number == 1
        made.transform.number = 0
    assert len(server.asked) == 1


def test_every_transform_is_called_in_order_in_the_process_that_asks(server, options):
    urls, seen = put(server, 8), []
    made = flatout.objects(urls, lambda data: seen.append(data[0]), storage_options=options)
    made.__getitems__([3, 1, 3, 0])
    assert seen == [3, 1, 3, 0]


def test_compiled_it_gives_the_same_batches(options, server):
    urls = put(server, 48)
    made = flatout.objects(urls, first_byte, labels=list(range(48)), storage_options=options)
    loader = DataLoader(made, batch_size=16, shuffle=True)
    torch.manual_seed(3)
    wanted = [[each.clone() for each in batch] for _ in range(3) for batch in loader]
    torch.manual_seed(3)
    compiled = flatout.compile_loader(loader)
    got = [[each.clone() for each in batch] for _ in range(3) for batch in compiled]
    for one, other in zip(wanted, got, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_compiled_before_anything_was_read_it_keeps_samples(server, options):
    """A copy that is looked at must not count as one that writes files."""
    made = flatout.objects(put(server, 48), first_byte, storage_options=options)
    compiled = flatout.compile_loader(DataLoader(made, batch_size=16))
    for _ in range(3):
        assert torch.cat(list(compiled)).tolist() == list(range(48))
    assert "kept" in flatout.explain(compiled)


def test_a_folder_names_its_objects(server, options, tmp_path):
    for at in range(3):
        (tmp_path / f"{at}.bin").write_bytes(bytes([at]))
    assert list(flatout.objects(tmp_path)) == list(flatout.objects(f"{tmp_path}/*.bin")) == [b"\0", b"\1", b"\2"]
    assert list(flatout.objects([tmp_path / "2.bin", f"{tmp_path}/0.bin"])) == [b"\2", b"\0"]


def test_paths_are_those_of_the_moment(tmp_path, monkeypatch):
    (tmp_path / "a").write_bytes(b"1")
    monkeypatch.chdir(tmp_path)
    made = flatout.objects(["a"])
    monkeypatch.chdir("/")
    assert made[0] == b"1"


@pytest.mark.parametrize(
    ("given", "more", "error", "words"),
    [
        ([], {}, BadObject, "0 objects"),
        (["s3://b/a"], {"labels": [1, 2]}, ValueError, "2 labels for 1 objects"),
        (["s3://b/a"], {"ranges": []}, ValueError, "0 ranges for 1 objects"),
        (["s3://b/a"], {"ranges": [(5, 5)]}, ValueError, "the range"),
        (["s3://b/a"], {"ranges": [(-1, 5)]}, ValueError, "the range"),
        (["s3://b/a"], {"in_flight": 0}, ValueError, "in_flight is 0"),
        ([b"s3://b/a"], {}, TypeError, "is no URL"),
    ],
)
def test_what_makes_no_data_set_is_said_at_once(given, more, error, words):
    with pytest.raises(error, match=words):
        flatout.objects(given, **more)


def test_two_trainings_at_once_do_not_hold_each_other_up(tmp_path):
    context = multiprocessing.get_context("fork")
    with ObjectServer() as server:
        urls = put(server, 30)
        made = flatout.objects(urls, first_byte, folder=tmp_path, max_bytes=10_000, storage_options=options_of(server))
        ends = [context.Process(target=lambda: [list(made) for _ in range(3)]) for _ in range(2)]
        for one in ends:
            one.start()
        for one in ends:
            one.join(60)
        assert [one.exitcode for one in ends] == [0, 0]
        assert sum(path.stat().st_size for path in tmp_path.glob("*/*")) <= 10_000
