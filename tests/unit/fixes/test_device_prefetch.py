"""One batch ahead on the device: the same items in the same order, errors at their batch, nothing left behind."""

import contextlib
import dataclasses
import gc
import random
import threading
import time
from types import SimpleNamespace

import pytest
import torch
from tests.unit.fixes.inputs import Drawing, Failing, Rows
from tests.unit.fixes.training import Process, under
from torch.utils.data import DataLoader

from flatout.fixes import device_prefetch, pinned_copy
from flatout.schema.run import Environment, Header, LoaderFacts, Run
from flatout.torch_loader import lookahead
from flatout.torch_loader.batch_copies import Marked, asked_device, tensors_at
from flatout.torch_loader.lookahead import Lookahead, TransferStreams, Wanted
from flatout.watch.dataset_state import same

pytestmark = pytest.mark.slow


def train_on(loader, change=lambda x: x, epochs=2):
    """Walk a loader as a training does that copies x, reads y on the host, and draws random numbers."""
    torch.manual_seed(0)
    random.seed(0)
    seen = []
    for _ in range(epochs):
        for x, y in loader:
            time.sleep(0.005)  # the step: the next batch arrives meanwhile
            x = change(x).to("cpu")
            seen.append((x, y.numpy().tolist(), float(torch.rand(())), random.random()))
    return seen


def loader(dataset=Rows, **options):
    return DataLoader(dataset(), **{"batch_size": 4, "shuffle": True, "num_workers": 1} | options)


@pytest.mark.parametrize("dataset", [Rows, Drawing])
def test_items_order_and_random_streams_are_those_of_the_script(dataset):
    plain = train_on(loader(dataset))
    with under("device-prefetch", kind="cpu") as process:
        assert same(train_on(loader(dataset)), plain)
        assert process.site.hits["copied ahead"] > 0


def test_workers_that_torch_keeps_are_followed_through_every_epoch():
    plain = train_on(loader(persistent_workers=True), epochs=3)
    with under("device-prefetch", kind="cpu"):
        assert same(train_on(loader(persistent_workers=True), epochs=3), plain)


def test_a_loader_without_workers_is_left_alone():
    plain = train_on(loader(Drawing, num_workers=0))
    with under("device-prefetch", kind="cpu") as process:
        assert same(train_on(loader(Drawing, num_workers=0)), plain)
        assert process.site.hits == {}


def test_a_batch_that_the_script_has_written_to_is_copied_as_it_is_then():
    plain = train_on(loader(), lambda x: x.add_(1))
    with under("device-prefetch", kind="cpu") as process:
        assert same(train_on(loader(), lambda x: x.add_(1)), plain)
        assert process.site.hits == {}


@pytest.mark.full
def test_errors_come_at_their_batch():
    def until_error():
        seen = []
        with contextlib.suppress(KeyError):
            for x, _ in loader(Failing, shuffle=False):
                seen.append(x.to("cpu"))
        assert len(seen) == 5
        gc.collect()  # torch raises a worker's error in a way that keeps the loader, and its workers, until then
        return seen

    plain = until_error()
    with under("device-prefetch", kind="cpu"):
        assert same(until_error(), plain)


def test_a_pass_that_is_broken_off_leaves_no_thread():
    before = set(threading.enumerate())
    with under("device-prefetch", kind="cpu"):
        for number, (x, _) in enumerate(loader()):
            x.to("cpu")
            if number == 5:
                break
    assert {thread for thread in threading.enumerate() if not thread.daemon} <= before


class Source:
    """Batches by hand; the next one is there when `there` says so."""

    def __init__(self, batches, there=True):
        self.batches, self.there, self.position = batches, there, 0

    def next_data(self):
        if self.position == len(self.batches):
            raise StopIteration
        self.position += 1
        return self.batches[self.position - 1]

    def peek(self):
        return self.batches[self.position] if self.there and self.position < len(self.batches) else None


@dataclasses.dataclass
class Pair:
    left: torch.Tensor
    right: list


def test_only_what_the_script_copies_is_copied_ahead_wherever_it_lies_in_the_batch():
    batches = [{"a": (torch.full((2,), float(i)), i), "b": Pair(torch.ones(1), [torch.zeros(1)])} for i in range(6)]
    ahead, cpu = Lookahead(Source(batches), Wanted(), TransferStreams()), torch.device("cpu")
    copied = []
    for number in range(6):
        batch = ahead.next_data()
        assert batch is batches[number]
        copied.append([ahead.asked(tensor, cpu) for _, tensor in tensors_at(batch)][::2])  # the first and the last one
        assert ahead.asked(batch["b"].left, cpu) is None or number < 2
    with pytest.raises(StopIteration):
        ahead.next_data()
    assert all(one is None for pair in copied[:2] for one in pair)
    assert [float(pair[0][0]) for pair in copied[2:]] == [2.0, 3.0, 4.0, 5.0]


def test_a_batch_that_is_not_there_yet_is_not_waited_for():
    source = Source([torch.ones(1) * i for i in range(5)], there=False)
    ahead, cpu = Lookahead(source, Wanted(), TransferStreams()), torch.device("cpu")
    assert [ahead.asked(ahead.next_data(), cpu) for _ in range(5)] == [None] * 5


# -- a device that writes down what it is told -----------------------------------------------------------------------


class Cuda:
    """Stands in for `torch.cuda`: streams and events by name, and the order of what happened."""

    def __init__(self):
        self.told = []
        self.current = SimpleNamespace(wait_event=lambda event: self.told.append(("current waits for", event)))

    def is_available(self):
        return True

    def current_device(self):
        return 0

    def current_stream(self, device):
        return self.current

    def Stream(self, device):
        self.told.append("side stream")
        return SimpleNamespace(
            wait_stream=lambda stream: self.told.append("side waits for current"), record_event=lambda: "event"
        )

    def stream(self, side):
        return contextlib.nullcontext()


class Tensor:
    """Stands in for a tensor of a loader."""

    is_floating_point = untyped_storage = None

    def __init__(self, told, device="cpu"):
        self.told, self.device, self._version = told, torch.device(device), 0

    def to(self, device, **options):
        self.told.append(("copy", options))
        return Tensor(self.told, device)

    def record_stream(self, stream):
        self.told.append("recorded on current")


def test_a_copy_runs_on_one_side_stream_and_is_handed_to_the_current_one(monkeypatch):
    cuda = Cuda()
    monkeypatch.setattr(torch, "cuda", cuda)
    ahead = Lookahead(Source([Tensor(cuda.told) for _ in range(4)]), Wanted(), TransferStreams())
    device = torch.device("cuda:0")
    for _ in range(4):
        ahead.asked(ahead.next_data(), device)
    copied = ["side waits for current", ("copy", {"non_blocking": True, "copy": True})]
    handed = [("current waits for", "event"), "recorded on current"]
    assert cuda.told == ["side stream", *copied, *copied, *handed, *handed]  # the second runs ahead of the first's use


def test_no_room_on_the_device_is_no_error():
    class Full(TransferStreams):
        def copy(self, tensor, device):
            raise RuntimeError("out of memory")

    ahead, cpu = Lookahead(Source([torch.ones(1)] * 4), Wanted(), Full()), torch.device("cpu")
    assert [ahead.asked(ahead.next_data(), cpu) for _ in range(4)] == [None] * 4


# -- which calls ask for a device -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "args", "kwargs", "wanted"),
    [
        ("to", ("cpu",), {}, "cpu"),
        ("to", (), {"device": "cpu", "non_blocking": True}, "cpu"),
        ("to", (torch.device("meta"),), {}, "meta"),
        ("to", (1,), {}, "cuda:1"),
        ("cuda", (), {}, "cuda"),
        ("cuda", (2,), {}, "cuda:2"),
        ("to", (torch.float16,), {}, None),
        ("to", ("cpu", torch.float16), {}, None),
        ("to", ("cpu",), {"copy": True}, None),
        ("to", (), {}, None),
        ("to", (True,), {}, None),
    ],
)
def test_only_plain_copies_are_recognised(name, args, kwargs, wanted):
    device = asked_device(name, args, kwargs)
    assert device == (torch.device(wanted) if wanted else None)


def test_marks_go_with_their_tensors():
    marks, kept = Marked(), torch.ones(1)
    marks.put(kept, "kept")
    marks.put(torch.ones(1), "lost")
    assert marks.get(kept) == "kept"
    assert len(marks._notes) == 1
    assert marks.pop(kept) == "kept"
    assert marks.get(kept) is None


# -- pinned copies ----------------------------------------------------------------------------------------------------


def test_a_tensor_from_a_pinned_loader_is_copied_without_waiting(monkeypatch):
    asked = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda tensor: tensor.dtype == torch.float32)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor)  # CUDA builds want the driver that we feign
    monkeypatch.setattr(torch.Tensor, "to", lambda tensor, *args, **kwargs: asked.append((args, kwargs)))
    with Process(("pinned-copy", {})) as process:
        made = DataLoader(Rows(8), 4)
        for x, y in made:
            assert made.pin_memory
            x.to("cuda")
            x.to("cuda", non_blocking=False)
            x[:1].to("cuda")
            x.to("cpu")
            y.to("cuda")
        assert process.site.hits == {"pin_memory": 1, "non_blocking": 2}
    assert not made.pin_memory
    plain = [(("cuda",), {"non_blocking": False}), (("cuda",), {}), (("cpu",), {}), (("cuda",), {})]
    assert asked == [(("cuda",), {"non_blocking": True}), *plain] * 2


@pytest.mark.parametrize("fix", [device_prefetch, pinned_copy])
def test_it_is_offered_on_cuda_only(fix):
    facts = {"header": Header(script="a"), "loaders": (LoaderFacts(is_training=True),)}
    assert fix.choices(Run(environment=Environment(device_kind="cuda"), **facts)) == ({},)
    assert fix.choices(Run(**facts)) == ()
    assert lookahead.__all__
