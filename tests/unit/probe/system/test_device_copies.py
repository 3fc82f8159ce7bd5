"""What a deep run says of copies: whether the same tensor travels again, and whether its values are bytes."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from flatout.probe.core.event_log import EventLog
from flatout.probe.core.probe_failure import raise_it
from flatout.probe.core.seams import Seams
from flatout.probe.core.spans import TRANSFER
from flatout.probe.system.device_copies import CopyWatch, holds_bytes
from flatout.probe.system.device_waits import DeviceWatch


@pytest.fixture
def watch():
    return CopyWatch(lambda: True, raise_it)


def copy(watch, tensor):
    watch.copied(tensor, tensor, 1000, True)  # ONE PLACE


def the_one(watch):
    (found,) = watch.transfers()
    return found


def test_the_same_tensor_is_known_for_repeated_from_the_third_time_on(watch):
    mask = torch.ones(64, 64)
    copy(watch, mask)
    copy(watch, mask)
    assert the_one(watch).repeats == 0
    copy(watch, mask)
    assert the_one(watch).repeats == 3


def test_the_same_tensor_is_counted_each_time(watch):
    mask = torch.ones(64, 64)
    for _ in range(10):
        copy(watch, mask)
    found = the_one(watch)
    assert (found.count, found.repeats, found.num_bytes) == (10, 10, 10 * mask.nbytes)
    assert (found.direction, found.place.file, found.place.function) == ("to_device", __file__, "copy")


def test_masks_of_several_layers_that_take_turns_at_one_line_are_repeated(watch):
    masks = [torch.ones(64, 64) for _ in range(4)]
    for _ in range(10):
        for mask in masks:
            copy(watch, mask)
        watch.step()
    found = the_one(watch)
    assert (found.count, found.repeats) == (40, 40)


def test_batches_that_are_kept_and_come_again_some_steps_later_are_not(watch):
    batches = [torch.ones(64, 64) for _ in range(4)]
    for number in range(40):
        copy(watch, batches[number % 4])
        watch.step()
    assert the_one(watch).repeats == 0


def test_few_of_many_tensors_are_remembered(watch):
    for _ in range(2):
        for tensor in [torch.ones(2) for _ in range(300)]:
            copy(watch, tensor)
    assert all(len(cost.latest) <= 256 for cost in watch._copies.values())


def test_a_view_of_the_same_memory_is_the_same_tensor(watch):
    table = torch.ones(64, 64)
    for _ in range(10):
        copy(watch, table[:8])
    assert the_one(watch).repeats == 10


def test_another_part_of_the_same_memory_is_not(watch):
    table = torch.ones(64, 64)
    for number in range(10):
        copy(watch, table[number : number + 8])
    assert the_one(watch).repeats == 0


@pytest.mark.parametrize("through", ["torch", "numpy"])
def test_what_was_written_to_between_two_copies_is_not_repeated(watch, through):
    array = np.zeros((16, 16), dtype=np.float32)
    buffer = torch.from_numpy(array)
    for number in range(10):
        if through == "torch":
            buffer.fill_(number)
        else:
            array[:] = number
        copy(watch, buffer)
    assert the_one(watch).repeats == 0


def test_equal_values_in_new_tensors_are_not_repeated(watch):
    for _ in range(10):
        copy(watch, torch.zeros(16, 16))
    assert the_one(watch).repeats == 0


@settings(max_examples=examples(25), deadline=None)
@given(
    st.integers(0, 2**31),
    st.lists(st.tuples(st.floats(-3, 3), st.floats(0.02, 5)), min_size=3, max_size=3),
    st.booleans(),
)
def test_scaled_bytes_are_told_from_other_numbers(seed, scales, channels_last):
    generator = torch.Generator().manual_seed(seed)
    pixels = torch.randint(0, 256, (8, 3, 64, 64), generator=generator)
    shift = torch.tensor([one for one, _ in scales]).view(1, 3, 1, 1)
    width = torch.tensor([two for _, two in scales]).view(1, 3, 1, 1)
    images = (pixels.float() / 255 - shift) / width
    noisy = images + 1e-3 * torch.rand(images.shape, generator=generator)
    if channels_last:
        images, noisy = images.permute(0, 2, 3, 1), noisy.permute(0, 2, 3, 1)
    assert holds_bytes(images)
    assert not holds_bytes(noisy)


@pytest.mark.parametrize(
    "values",
    [
        pytest.param(torch.zeros(1, 256, 256), id="one value"),
        pytest.param(torch.full((1, 256, 256), torch.nan), id="not numbers"),
        pytest.param(torch.arange(65_536.0).reshape(256, 256) % 1000, id="a thousand values"),
        pytest.param(torch.tensor([0.0, 0.1, 0.11, 1.0]).repeat(20_000).sqrt(), id="uneven values"),
    ],
)
def test_what_is_no_evenly_spaced_byte_is_not_called_one(values):
    assert not holds_bytes(values)


def test_only_large_copies_of_floating_point_numbers_are_looked_at_and_only_a_few(watch):
    large = (torch.randint(0, 256, (1, 3, 256, 256)) / 255).requires_grad_()
    for tensor in (torch.rand(100), torch.randint(0, 9, (70_000,)), large, large, large, large):
        copy(watch, tensor)
    assert {(found.dtype, found.looked, found.as_bytes) for found in watch.transfers()} == {
        ("float32", 3, 3),
        ("int64", 0, 0),
    }


def test_emptying_the_cache_is_told_with_its_line_in_a_deep_run_and_is_no_seam_of_a_timed_one(watch, monkeypatch):
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: True)
    plain = torch.cuda.empty_cache
    for sink in (watch, None):
        seams = Seams()
        DeviceWatch(EventLog(lambda _: None, lambda _: None), sink).install(seams)
        torch.cuda.empty_cache()
        seams.undo()
    assert torch.cuda.empty_cache is plain
    (found,) = watch.syncs()
    assert (found.operation, found.count, found.place.file) == ("torch.cuda.empty_cache", 1, __file__)


class OnDevice:
    """What `CopyWatch` reads of a tensor on a CUDA device; there is none here."""

    device, dtype, nbytes = torch.device("cuda", 0), torch.float32, 4096


@pytest.mark.parametrize(
    ("name", "arguments", "counted"),
    [
        pytest.param("cpu", (), True, id="cpu()"),
        pytest.param("to", ("cpu",), True, id="to a name"),
        pytest.param("to", (torch.device("cpu"),), True, id="to a device"),
        pytest.param("to", (torch.zeros(1),), True, id="to where another one lies"),
        pytest.param("to", (torch.float16,), False, id="to a type"),
        pytest.param("to", ("cuda:1",), False, id="to another device"),
    ],
)
def test_copies_back_are_told_from_conversions_on_the_device(watch, name, arguments, counted):
    def original(tensor, *args):
        return tensor

    original.__name__ = name
    tensor = OnDevice()
    assert watch.fetching(original)(tensor, *arguments) is tensor
    assert [(found.direction, found.count, found.num_bytes) for found in watch.transfers()] == (
        [("to_host", 1, 4096)] if counted else []
    )


def test_copies_back_outside_of_steps_are_not_counted():
    watch = CopyWatch(lambda: False, raise_it)
    watch.fetching(lambda tensor: tensor)(OnDevice())
    assert watch.transfers() == ()


def test_what_moves_before_the_first_step_is_not_counted(watch):
    watch.counting = False
    copy(watch, torch.ones(64, 64))
    watch.fetching(lambda tensor: tensor)(OnDevice())
    watch.waited("item", 1000)
    assert (watch.transfers(), watch.syncs()) == ((), ())
    watch.counting = True
    copy(watch, torch.ones(64, 64))
    assert the_one(watch).count == 1


@pytest.mark.parametrize(
    ("change", "charged"),
    [
        pytest.param(lambda tensor: tensor.to(torch.float16), "", id="another type"),
        pytest.param(lambda tensor: tensor.to(dtype=torch.float16), "", id="another type by name"),
        pytest.param(lambda tensor: tensor.to("cpu"), "", id="where it lies"),
        pytest.param(lambda tensor: tensor.to(torch.zeros(1)), "", id="where another one lies, here too"),
        pytest.param(lambda tensor: tensor.to("meta"), "transfer", id="a name"),
        pytest.param(lambda tensor: tensor.to(torch.device("meta"), torch.float16), "transfer", id="a device"),
        pytest.param(lambda tensor: tensor.to(device="meta"), "transfer", id="a device by name"),
        pytest.param(lambda tensor: tensor.to(torch.zeros(1, device="meta")), "transfer", id="another's device"),
        pytest.param(
            lambda tensor: tensor.to(tensor=torch.zeros(1, device="meta")), "transfer", id="the other by name"
        ),
    ],
)
def test_only_what_goes_to_a_device_is_charged_to_transfer(monkeypatch, change, charged):
    """A type changed on the CPU, as ToTensor does to every image, is the work of whoever does it."""
    entered = []
    event_log = EventLog(lambda _: None, lambda _: None)
    monkeypatch.setattr(event_log, "record", lambda event: entered.append(event[0]))
    seams = Seams()
    DeviceWatch(event_log, None, everywhere=True).install(seams)
    try:
        change(torch.ones(3))
    finally:
        seams.undo()
    events = event_log.events
    assert [kind for kind in entered if kind != events.leave] == ([events.enter[TRANSFER]] if charged else [])


def test_a_type_changed_on_the_device_is_no_wait_for_it(monkeypatch):
    entered = []
    event_log = EventLog(lambda _: None, lambda _: None)
    monkeypatch.setattr(event_log, "record", entered.append)
    seams = Seams()
    DeviceWatch(event_log, None, everywhere=True).install(seams)
    try:
        torch.ones(3, device="meta").to(torch.float16)
        torch.ones(3, device="meta").to("meta")
    finally:
        seams.undo()
    assert entered == []


@pytest.mark.slow
def test_compiled_code_may_hand_arrays_to_code_that_is_not():
    @torch.compiler.disable
    def counted(array):
        return array.sum()

    def forward(x):
        return x + torch.as_tensor(counted((x * 2).numpy()))

    seams = Seams()
    DeviceWatch(EventLog(lambda _: None, lambda _: None), None, everywhere=True).install(seams)
    try:
        compiled = torch.compile(forward, backend="aot_eager")
        assert all(torch.equal(compiled(torch.ones(3)), torch.full((3,), 7.0)) for _ in range(3))
    finally:
        seams.undo()
        torch._dynamo.reset()
