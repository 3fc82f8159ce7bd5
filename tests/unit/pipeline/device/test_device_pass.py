"""Batches on a device: the bits and strides that `tensor.to` would give. A CPU stands for the device here."""

import contextlib
import dataclasses
import functools
import gc
import random
import threading
import weakref
from collections import OrderedDict, defaultdict
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from tests.torchvision_stub import torchvision
from tests.unit.pipeline import programs
from tests.unit.pipeline.compile.test_batch_compiler import NORMALIZED, RGB, Pictures
from tests.unit.pipeline.programs import Images, Pair, Program
from tests.unit.pipeline.test_equality import MANY, pipelines, raises
from torch.utils.data import DataLoader, TensorDataset

from flatout.pipeline import compile_loader
from flatout.pipeline.cache.batch_layout import Rows
from flatout.pipeline.compile.batch_compiler import EndElsewhere
from flatout.pipeline.compile.kernels.core.kernel import Unsuited
from flatout.pipeline.compile.pointwise_table import num_pointwise, table_of
from flatout.pipeline.compile.registry import kernel_for
from flatout.pipeline.compile.sample_form import SampleForm
from flatout.pipeline.device import resident_rows
from flatout.pipeline.device.begun_batches import BegunBatches
from flatout.pipeline.device.device_stream import Arrived, DeviceStream
from flatout.pipeline.device.pinned_ring import PinnedRing, travels
from flatout.pipeline.serve import compiled_loader as compiled
from flatout.watch.dataset_state import same

v1 = torchvision.transforms
v2 = pytest.importorskip("torchvision.transforms.v2")

RESIZED = v1.Compose([v1.Resize(12), v1.ToTensor(), v1.Normalize(*RGB)])
AUGMENTED = v1.Compose([v1.RandomCrop(8, padding=2), v1.RandomHorizontalFlip(), v1.ToTensor(), v1.Normalize(*RGB)])
UNKNOWN = v1.Compose([v1.ToTensor(), v1.Lambda(lambda image: image.sqrt())])
ONLY_ON_CPU = v1.Compose([v1.Resize(12), v1.ToTensor(), v1.Resize(7)])


class Event:
    """Passes when it is waited for, or asked about for the second time."""

    def __init__(self):
        self.asked = 0

    def query(self):
        self.asked += 1
        return self.asked > 1

    def synchronize(self):
        self.asked = 2


class Apart(DeviceStream):
    """A CPU whose memory counts as another device's: everything is copied there, by way of the ring."""

    def _is_away(self, tensor):
        return True

    def event(self):
        return Event()

    def hand_out(self, batch, event):
        assert isinstance(event, Event)
        return batch


@pytest.fixture
def apart(monkeypatch):
    monkeypatch.setattr(compiled, "DeviceStream", Apart)


def on(program, passes=3, **options):
    """Run a program plainly and with its batches on a device; return the compiled loader once both were equal."""
    plain, _ = program.seen(passes=passes)
    ours, loader = program.seen(functools.partial(compile_loader, device="cpu", **options), passes)
    assert len(plain) == len(ours)
    for one, other in zip(plain, ours, strict=True):
        assert same(one, other)
    return loader


def encode(transform, kind=Pictures, **options):
    return on(Program(kind(transform), {"batch_size": 7, "shuffle": True}), **options).explain()


# -- where batches come from ----------------------------------------------------------------------------------------


KIB_OF_BYTES, KIB_OF_FLOATS = 30 * (3 * 144 + 72) / 1024, 30 * (4 * 3 * 144 + 72) / 1024


@pytest.mark.usefixtures("apart")
def test_what_bytes_become_is_kept_on_the_device_once_all_are_there():
    assert encode(RESIZED).startswith(f"made in batches; 30 samples kept in {KIB_OF_FLOATS:.1f} KiB on cpu")


@pytest.mark.usefixtures("apart")
@pytest.mark.parametrize("chunk_bytes", [1, 9000])
def test_what_bytes_become_is_made_piece_by_piece(monkeypatch, chunk_bytes):
    monkeypatch.setattr(resident_rows, "_CHUNK_BYTES", chunk_bytes)
    assert f"{KIB_OF_FLOATS:.1f} KiB on cpu" in encode(RESIZED)


@pytest.mark.usefixtures("apart")
def test_bytes_stay_where_there_is_little_more_room_on_the_device():
    """Room for the bytes, and for what they become beside them, but that would be more than half of what is left."""
    most = round((KIB_OF_BYTES + 1.5 * KIB_OF_FLOATS) * 1024)
    assert f"{KIB_OF_BYTES:.1f} KiB on cpu" in encode(RESIZED, max_device_bytes=most)


@pytest.mark.usefixtures("apart")
def test_bytes_stay_where_memory_ends_while_they_are_looked_up(monkeypatch):
    monkeypatch.setattr(EndElsewhere, "looked_up", fails_on_many(EndElsewhere.looked_up))
    assert f"{KIB_OF_BYTES:.1f} KiB on cpu" in encode(RESIZED)


def fails_on_many(looked_up):
    def fail(end, parts):
        if len(parts[0]) > 7:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return looked_up(end, parts)

    return fail


@pytest.mark.usefixtures("apart")
def test_what_bytes_become_is_not_given_once_torch_s_default_type_is_another():
    seen = []
    for make in (lambda loader: loader, functools.partial(compile_loader, device="cpu")):
        loader = make(DataLoader(Pictures(RESIZED), 7))
        seen.append([*loader, *loader])
        torch.set_default_dtype(torch.float64)
        try:
            seen[-1] += [*loader]
        finally:
            torch.set_default_dtype(torch.float32)
    assert same(*seen)


@pytest.mark.usefixtures("apart")
def test_the_order_of_a_pass_is_sent_in_one_piece(monkeypatch):
    sent = []
    arrive = Apart.arrive
    monkeypatch.setattr(Apart, "arrive", lambda device, parts: sent.append(list(parts)) or arrive(device, parts))
    loader = compile_loader(DataLoader(Pictures(RESIZED), 7, shuffle=True), device="cpu")
    for _ in range(3):
        list(loader)
    sent.clear()
    one, other = iter(loader), iter(loader)
    for _ in range(5):
        next(one), next(other)
    orders = [part for parts in sent for part in parts if part.dtype is torch.int64 and part.shape == (30,)]
    assert len(orders) == 2
    assert not [part for parts in sent for part in parts if part.shape == (7,) and len(parts) == 1]


@pytest.mark.usefixtures("apart")
def test_bytes_travel_where_the_device_has_no_room():
    said = encode(RESIZED, max_device_bytes=0)
    assert said.startswith(f"made in batches; 30 samples kept in {KIB_OF_BYTES:.1f} KiB; ")
    assert said.endswith("batches are copied to cpu")


@pytest.mark.usefixtures("apart")
def test_random_operations_are_done_before_the_copy_and_scaling_after():
    assert encode(AUGMENTED).startswith(f"made in batches; 30 samples kept in {30 * (3 * 81 + 72) / 1024:.1f} KiB; ")


@pytest.mark.usefixtures("apart")
@pytest.mark.parametrize("transform", [UNKNOWN, ONLY_ON_CPU])
@pytest.mark.slow
def test_what_has_no_table_is_finished_on_the_cpu(transform):
    assert "30 samples kept" in encode(transform)
    assert "30 samples kept" in encode(transform, max_device_bytes=0)


@pytest.mark.usefixtures("apart")
def test_a_pipeline_that_is_refused_is_copied_as_the_script_makes_it():
    said = on(Program(programs.OwnGenerator(12), {"batch_size": 4})).explain()
    assert said.startswith("left as it is")
    assert said.endswith("batches are copied to cpu")


@pytest.mark.usefixtures("apart")
def test_what_is_kept_in_files_stays_there(tmp_path):
    loader = on(Program(Pictures(RESIZED), {"batch_size": 7}), folder=tmp_path)
    loader._kept.wait()
    again = on(Program(Pictures(RESIZED), {"batch_size": 7}), folder=tmp_path)
    assert "on cpu" not in again.explain()


@pytest.mark.slow
@pytest.mark.parametrize("room", [None, 0])
@MANY
@given(pipelines())
@pytest.mark.full
def test_any_of_many_pipelines_gives_the_same_batches(room, program):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "DeviceStream", Apart)
        if raises(program) is None:
            assert on(program, max_device_bytes=room).explain()


@pytest.mark.usefixtures("apart")
@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize("dataset", [Images(12), programs.Counting(12), Pictures(AUGMENTED)])
@pytest.mark.slow
def test_a_loader_with_workers_gives_the_same_batches(dataset):
    assert on(Program(dataset, {"batch_size": 5, "shuffle": True, "num_workers": 1}, draws=True)).explain()


def test_a_device_without_values_gets_shapes_types_and_strides():
    plain = DataLoader(Pictures(RESIZED), batch_size=7)
    for _ in range(2):
        for one, other in zip(plain, compile_loader(plain, device="meta"), strict=True):
            assert other["image"].device.type == "meta"
            assert (one["image"].dtype, one["image"].stride()) == (other["image"].dtype, other["image"].stride())
            assert one["name"] == other["name"]


def test_an_unknown_device_is_an_error_at_once():
    with pytest.raises(RuntimeError, match="device"):
        compile_loader(DataLoader(Images(4)), device="nonsense")


# -- one batch ahead ------------------------------------------------------------------------------------------------


def asked(dataset, **options):
    """Return how many batches were made when each was received, in the second pass."""
    loader = compile_loader(DataLoader(dataset, batch_size=3, **options), device="cpu")
    list(loader)
    cache = loader._kept.of(loader._plain)
    before = cache.served
    return [cache.served - before for _ in loader]


@pytest.mark.parametrize("shuffle", [True, False])
def test_the_next_batch_is_begun_before_one_is_given(shuffle):
    assert asked(Images(12), shuffle=shuffle) == [2, 3, 4, 4]


def test_nothing_is_made_ahead_that_would_draw_earlier():
    assert asked(Pictures(AUGMENTED)) == list(range(1, 11))
    assert asked(Images(12), sampler=list(range(12))) == [1, 2, 3, 4]  # a sampler of a kind that is not known


@pytest.mark.usefixtures("apart")
def test_a_pass_that_is_broken_off_and_several_at_once_give_their_own_batches():
    loader = compile_loader(DataLoader(Images(12), batch_size=3), device="cpu")
    plain = list(DataLoader(Images(12), batch_size=3))
    for _ in range(3):
        first, second = iter(loader), iter(loader)
        assert same(next(first), plain[0])
        for wanted in plain:
            assert same(next(second), wanted)
        assert same(next(first), plain[1])
        with pytest.raises(StopIteration):
            next(second)
        with pytest.raises(StopIteration):
            next(second)


class Breaking(Images):
    """One sample cannot be read once `broken` is set."""

    broken = False

    def __getitem__(self, index):
        if self.broken and index == 7:
            raise KeyError("sample 7")
        return super().__getitem__(index)


def test_errors_come_at_their_batch():
    dataset = Breaking(12)
    loader = compile_loader(DataLoader(dataset, batch_size=3), device="cpu")
    for _ in range(2):
        dataset.broken = True
        seen = []
        with contextlib.suppress(KeyError):
            seen.extend(batch for batch in loader)
        assert len(seen) == 2
        dataset.broken = False
        list(loader)
    walked = compile_loader(DataLoader(TensorDataset(torch.arange(9)), batch_size=3), device="cpu")
    assert [len(iter(walked)), len(walked)] == [3, 3]


def test_an_interrupt_passes_and_the_next_pass_is_whole():
    loader = compile_loader(DataLoader(Images(12), batch_size=3), device="cpu")
    wanted = list(loader)
    with contextlib.suppress(KeyboardInterrupt):
        for _ in loader:
            raise KeyboardInterrupt
    assert same(list(loader), wanted)


# -- tables ---------------------------------------------------------------------------------------------------------


def steps(operations, form):
    found = []
    for operation in operations:
        found.append(kernel_for(operation, form))
        form = found[-1].after
    return found


V2 = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(*RGB)]
CHAINS = [
    (NORMALIZED.transforms, SampleForm("image", "L"), (9, 7)),
    (RESIZED.transforms[1:], SampleForm("image", "RGB"), (9, 7, 3)),
    (V2, SampleForm("image", "RGB"), (9, 7, 3)),
    (V2[1:], SampleForm("tensor"), (3, 9, 7)),
    ([v1.PILToTensor()], SampleForm("image", "RGB"), (5, 4, 3)),
    ([v2.ToDtype(torch.bfloat16, scale=True)], SampleForm("tensor"), (6,)),
    ([torch.Tensor.float], SampleForm("tensor"), ()),
    ([v1.ToTensor()], SampleForm("array"), (5, 4, 3)),
]


@pytest.mark.parametrize(("operations", "form", "shape"), CHAINS)
@pytest.mark.parametrize("lead", [False, True])
def test_a_table_gives_the_bits_and_strides_of_the_operations(operations, form, shape, lead):
    found = steps(operations, form)
    assert num_pointwise(found) == len(found)
    batch = torch.randint(0, 256, (6, *shape), dtype=torch.uint8)
    if lead and len(shape) == 3:  # the channels first in memory
        batch = batch.permute(0, 3, 1, 2).contiguous().permute(0, 2, 3, 1)
    wanted = batch
    for step in found:
        wanted = step.run(wanted)
    assert same(table_of(found, batch[:1]).run(batch), wanted)


def test_operations_that_look_around_or_draw_are_in_no_table():
    form = SampleForm("image", "RGB")
    assert num_pointwise(steps([v1.ToTensor(), v1.CenterCrop(4)], form)) == 0
    assert num_pointwise(steps([v1.RandomHorizontalFlip(), v1.ToTensor()], form)) == 1
    assert table_of(steps([v1.Normalize(*RGB)], SampleForm("tensor")), torch.zeros(1, 3, 4, 4)) is None


def test_a_table_is_for_the_default_type_that_it_was_made_with():
    table = table_of(steps([v1.ToTensor()], SampleForm("image", "L")), torch.zeros((1, 3, 3), dtype=torch.uint8))
    torch.set_default_dtype(torch.float64)
    try:
        with pytest.raises(Unsuited):
            table.run(torch.zeros((1, 3, 3), dtype=torch.uint8))
    finally:
        torch.set_default_dtype(torch.float32)


# -- the ring -------------------------------------------------------------------------------------------------------


def test_memory_is_written_again_only_after_the_copies_out_of_it_have_ended():
    ring, in_flight, draw = PinnedRing(pinned=False), [], random.Random(0)
    for number in range(300):
        (put,) = ring.put([torch.full((draw.randint(1, 40),), number)])
        event = SimpleNamespace(passed=False)
        event.query = lambda event=event: event.passed
        event.synchronize = lambda event=event: setattr(event, "passed", True)
        ring.sent(event)
        in_flight.append((put, number, event))
        for there, wanted, ended in in_flight:
            assert ended.passed or bool((there == wanted).all())
        if draw.random() < 0.5:
            draw.choice(in_flight)[2].passed = True
    assert len(ring._slots) <= 3


def test_the_ring_keeps_types_shapes_and_strides():
    given = [
        torch.arange(24.0).view(2, 3, 4).permute(0, 2, 1),
        torch.tensor(3, dtype=torch.int64),
        torch.ones((2, 2), dtype=torch.bool),
        torch.zeros((4, 1, 2), dtype=torch.bfloat16)[1:],
    ]
    assert all(map(travels, given))
    for one, other in zip(given, PinnedRing(pinned=False).put(given), strict=True):
        assert same(one, other)


def test_tensors_that_are_more_than_bytes_in_a_row_do_not_travel_by_it():
    wide = torch.zeros(4, 4)
    conjugate, parameter = torch.zeros(2, dtype=torch.complex64).conj(), torch.nn.Parameter(wide)
    for tensor in (wide[:, :2], wide[:1].expand(3, 4), wide.to_sparse(), parameter, torch.empty(0), conjugate):
        assert not travels(tensor)


# -- the device -----------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Both:
    left: torch.Tensor
    right: list


class Sheet:
    """A batch of a class of its own, that knows how to move."""

    def __init__(self, device="cpu"):
        self.device = device

    def to(self, device):
        return Sheet(device)


def test_all_tensors_of_a_batch_move_and_everything_else_stays():
    one = torch.arange(6.0).view(2, 3)
    batch = {
        "pair": Pair(one, one[:, :2]),
        "both": Both(one.clone(), ["text", 3, None]),
        "ordered": OrderedDict(a=(one, b"bytes")),
        "default": defaultdict(list, a=[one]),
        "sheet": Sheet(),
    }
    moved = Apart("cpu").bring(batch)
    assert moved["sheet"].device == torch.device("cpu")
    assert moved["default"]["missing"] == []
    del moved["default"]["missing"], batch["sheet"], moved["sheet"]
    assert [type(value) for value in moved.values()] == [type(value) for value in batch.values()]
    assert moved["pair"].image.data_ptr() != one.data_ptr()
    assert same(moved["both"], batch["both"])
    assert same([moved["pair"], moved["ordered"]], [batch["pair"], batch["ordered"]])


def test_no_more_is_kept_on_a_device_than_it_was_given():
    rows = [Rows((1024,), torch.uint8, (0, 1))]
    device = DeviceStream("cpu", 100 * 1024)
    first = device.store(rows, 60)
    assert first is not None
    assert device.store(rows, 60) is None
    del first
    assert device.store(rows, 60) is not None
    assert DeviceStream("meta").store(rows, 1) is None  # it does not say what is free


class Cuda:
    """Stands in for `torch.cuda`: streams and events by name, and the order of what happened."""

    def __init__(self, free):
        self.told, self.free, self.on = [], free, "current"
        self.current = SimpleNamespace(wait_event=lambda event: self.told.append(f"current waits for {event}"))

    def mem_get_info(self, device):
        return self.free, 2 * self.free

    def current_device(self):
        return 0

    def current_stream(self, device):
        return self.current

    def Stream(self, device):
        return SimpleNamespace(record_event=lambda: self.told.append("event") or "event")

    @contextlib.contextmanager
    def stream(self, side):
        before, self.on = self.on, "side"
        yield
        self.on = before


def test_a_quarter_of_what_is_free_on_a_cuda_device_is_taken_at_most_and_a_gibibyte_stays(monkeypatch):
    cuda = Cuda(3 * 1024**3)
    monkeypatch.setattr(torch, "cuda", cuda)
    device = DeviceStream("cuda")
    assert device.device == torch.device("cuda:0")
    assert device._left() == 1024**3 // 2
    cuda.free = 1024**3 + 5
    assert device._left() == 5
    cuda.free = 0
    assert device._left() == 0


def test_a_batch_is_made_on_one_side_stream_and_handed_to_the_current_one(monkeypatch):
    cuda = Cuda(2**40)
    monkeypatch.setattr(torch, "cuda", cuda)
    device = DeviceStream("cuda")
    device._ring = PinnedRing(pinned=False)

    class Sent(torch.Tensor):
        def to(self, *args, **options):
            cuda.told.append(f"copy on {cuda.on}, {options['non_blocking']}")
            return self

        def is_pinned(self):
            return False

    monkeypatch.setattr(PinnedRing, "put", lambda ring, tensors: [each.as_subclass(Sent) for each in tensors])
    made = device.bring({"a": torch.ones(2), "b": torch.ones(3)})
    assert cuda.told == ["copy on side, True", "copy on side, True", "event"]
    tensor = SimpleNamespace(device=device.device, record_stream=lambda stream: cuda.told.append("recorded"))
    monkeypatch.setattr("flatout.pipeline.device.device_stream.tensors_of", lambda batch: [tensor])
    assert device.hand_out(made, "event") is made
    assert cuda.told[3:] == ["current waits for event", "recorded"]


# -- what is left over ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("room", [None, 0])
@pytest.mark.parametrize("transform", [RESIZED, AUGMENTED, UNKNOWN, ONLY_ON_CPU])
@pytest.mark.parametrize("taken", [1, 2, 100])
@pytest.mark.few(5)
@pytest.mark.slow
def test_nothing_that_holds_memory_of_a_device_is_left_to_the_collector(transform, room, taken):
    """What a forked worker's collector frees of a device's pinned memory ends the worker."""
    compiled = compile_loader(DataLoader(Pictures(transform), batch_size=7), device="cpu", max_device_bytes=room)
    device = weakref.ref(compiled._device)
    gc.collect()
    gc.disable()
    try:
        for _ in range(2):
            for _batch in zip(range(taken), compiled, strict=False):
                pass
        del compiled, _batch
        for thread in threading.enumerate():  # one that reads samples is told to end, and may be about to
            if thread.name.startswith("flatout-samples"):
                thread.join(10)
        assert device() is None
    finally:
        gc.enable()


# -- what is given away -----------------------------------------------------------------------------------------------


def test_a_tensor_that_can_be_made_anew_is_given_itself_once_and_made_anew_from_then_on():
    device, made = DeviceStream("cpu"), []

    def anew():
        made.append(torch.zeros(3))
        return made[-1], None

    tensor = torch.zeros(3)
    twin = Arrived(tensor, None, anew).twin(device, False, lambda: None)
    assert twin.there() is tensor
    tensor.fill_(7)
    assert not made
    assert torch.equal(twin.here(), torch.zeros(3))
    second, third = twin.there(), twin.there()
    assert second is made[1]
    assert third is made[2]


@pytest.mark.parametrize("made_in", [False, True])
@pytest.mark.parametrize("asked_in", [False, True])
def test_a_tensor_of_another_mode_of_inference_is_copied(made_in, asked_in):
    with torch.inference_mode(made_in):
        tensor = torch.ones(3)
    twin = Arrived(tensor, None, lambda: (torch.ones(3), None)).twin(DeviceStream("cpu"), False, lambda: None)
    with torch.inference_mode(asked_in):
        found = twin.there()
    assert (found is tensor) is (made_in == asked_in)
    assert found.is_inference() is asked_in


def test_what_cannot_be_made_anew_and_views_are_copied():
    for arrived in (Arrived(torch.ones(3), None), Arrived(torch.ones(6)[:3], None, lambda: (torch.ones(3), None))):
        twin = arrived.twin(DeviceStream("cpu"), False, lambda: None)
        assert twin.there() is not twin.there()
        assert torch.equal(twin.here(), torch.ones(3))


@pytest.mark.parametrize("device", [None, "cpu"])
@pytest.mark.slow
def test_data_sets_and_what_is_kept_of_them_go_with_the_script_s_last_hold_on_them(device):
    gone = []
    for _ in range(3):
        dataset = Pictures(RESIZED)
        gone.append(weakref.ref(dataset))
        loader = compile_loader(DataLoader(dataset, batch_size=4), device=device)
        for _ in range(3):
            list(loader)
        del dataset, loader
    gc.collect()
    assert [each() for each in gone] == [None] * 3


def test_the_end_of_a_pass_that_waits_holds_no_frames():
    class Local:
        pass

    def walk():
        held = Local()
        numbers = iter(range(2))
        ahead = BegunBatches(numbers.__next__, lambda: True)
        ahead.next()
        ahead.next()  # the end waits behind it
        return ahead, weakref.ref(held)

    gc.disable()
    try:
        ahead, gone = walk()
        assert gone() is None
        with pytest.raises(StopIteration):
            ahead.next()
    finally:
        gc.enable()
