"""Compiled code against Pillow and torch, to the last bit: single operations, and several in one go on threads.

Modules: flatout.native.operation.
"""

import threading

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import Image
from tests.examples import examples
from tests.unit.pipeline.compile.kernels.samples import T

from flatout.native import native
from flatout.native.recycled_memory import RecycledMemory
from flatout.pipeline.cache.row_view import RowView
from flatout.pipeline.compile.kernels import color
from flatout.pipeline.compile.kernels.core.kernel import Unsuited
from flatout.pipeline.compile.parallel import cores_of_this_rank, shared
from flatout.pipeline.compile.registry import kernel_for
from flatout.pipeline.compile.sample_form import SampleForm
from flatout.pipeline.compile.transform_steps import Steps

SIDE = st.integers(1, 70)
SIZE = st.tuples(SIDE, SIDE)
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


pytestmark = pytest.mark.skipif(not native.available(), reason="flatout was installed without a C compiler")


@pytest.fixture(params=range(4), ids=["plain", "AVX2", "AVX-512", "VBMI"], scope="module", autouse=True)
def instructions(request):
    """Let compiled code take the ways of lesser processors, too."""
    if native.compiled.use(request.param) < request.param:
        native.compiled.use(3)
        pytest.skip("this processor has no such instructions")
    yield request.param
    native.compiled.use(3)


def bytes_of(number: int, size: tuple[int, int], colored: bool, seed: int, lead: bool = False) -> torch.Tensor:
    """Return images of all kinds of bytes, the first of extreme ones."""
    rng = np.random.default_rng(seed)
    pixels = torch.from_numpy(rng.integers(0, 256, (number, *size, *(3,) * colored), dtype=np.uint8))
    pixels[0] = pixels[0] // 128 * 255
    return pixels.permute(0, 3, 1, 2).contiguous().permute(0, 2, 3, 1) if lead and colored else pixels


@settings(max_examples=examples(300))
@given(SIZE, SIZE, st.booleans(), st.booleans(), st.sampled_from([2, 3]), st.data())
@example((9, 14), (5, 31), True, False, 2, None)
@example((30, 20), (10, 10), True, False, 2, None)  # twice as many rows as columns are lost: not more
@example((31, 20), (10, 10), True, False, 3, None)
def test_any_window_is_resized_as_pillow_resizes_it(size, wanted, colored, lead, chosen, data):
    height = data.draw(st.integers(1, size[0])) if data else size[0]
    width = data.draw(st.integers(1, size[1])) if data else size[1]
    top = data.draw(st.integers(0, size[0] - height)) if data else 0
    left = data.draw(st.integers(0, size[1] - width)) if data else 0
    batch = bytes_of(2, size, colored, seed=height * 71 + width, lead=lead)
    boxes = torch.tensor([[0, 0, *size], [top, left, height, width]])
    made = native.operated(native.resample(boxes, wanted, chosen), batch)
    assert made is not None
    for image, box, one in zip(batch, boxes.tolist(), made, strict=True):
        window = image[box[0] : box[0] + box[2], box[1] : box[1] + box[3]].contiguous().numpy()
        assert np.array_equal(np.asarray(Image.fromarray(window).resize(wanted[::-1], chosen)), one.numpy())


@settings(max_examples=examples(150))
@given(SIZE, SIZE, st.booleans(), st.booleans(), st.integers(-80, 80), st.integers(-80, 80), st.integers(0, 3))
@pytest.mark.slow
def test_any_window_is_cut_filled_and_turned(size, wanted, colored, lead, top, left, turned):
    batch = bytes_of(2, size, colored, seed=abs(top), lead=lead)
    fill = (7, 200, 31) if colored else (7,)
    places = torch.tensor([[top, left, turned % 2, turned // 2], [0, 0, 0, 0]])
    made = native.operated(native.cut(places, wanted, fill), batch)
    for image, (first, begin, mirrored, upside), one in zip(batch, places.tolist(), made, strict=True):
        expected = torch.tensor(fill, dtype=torch.uint8).expand(*wanted, len(fill)).clone()
        for row in range(wanted[0]):
            for column in range(wanted[1]):
                at = (row + first, column + begin)
                if 0 <= at[0] < size[0] and 0 <= at[1] < size[1]:
                    expected[row, column] = image[at]
        expected = expected.flip(1) if mirrored else expected
        expected = expected.flip(0) if upside else expected
        assert torch.equal(expected if colored else expected[..., 0], one)


@pytest.mark.parametrize("height", [2, 3, 7, 32])
@pytest.mark.parametrize("tall", [2, 3, 4, 5, 7, 8, 3.5, 1.25])
@pytest.mark.few(53)
@pytest.mark.slow
def test_between_two_rows_every_pair_of_bytes_gives_what_pillow_gives(height, tall):
    ones, others = np.divmod(np.arange(65536), 256)
    rows = np.stack([ones, others] * height)[:height].astype(np.uint8)
    wanted = (round(tall * height), 65536)
    resample = native.resample(torch.tensor([[0, 0, *rows.shape]]), wanted, 2)
    made = native.operated(resample, torch.from_numpy(rows)[None])
    assert np.array_equal(made[0].numpy(), np.asarray(Image.fromarray(rows).resize(wanted[::-1], 2)))


@pytest.mark.parametrize("width", [10, 11, 21, 22, 32, 33, 64])
def test_rows_of_any_length_are_enlarged_as_pillow_enlarges_them(width):
    batch = bytes_of(2, (9, width), colored=True, seed=width)
    wanted = (63, width)
    made = native.operated(native.resample(torch.tensor([[0, 0, 9, width]] * 2), wanted, 2), batch)
    for image, one in zip(batch, made, strict=True):
        assert np.array_equal(np.asarray(Image.fromarray(image.numpy()).resize(wanted[::-1], 2)), one.numpy())


TABLES = {
    "as they are": torch.arange(256, dtype=torch.uint8)[None],
    "of bytes": torch.stack([torch.arange(256).add(shift).mul(7).remainder(256).byte() for shift in (0, 3, 90)]),
    **{str(dtype): torch.linspace(-3, 9, 768).view(3, 256).to(dtype) for dtype in (torch.float16, *FLOATS[2:])},
}


@settings(max_examples=examples(200))
@given(
    SIZE, st.tuples(st.integers(1, 150), st.integers(1, 150)), st.booleans(), st.sampled_from([2, 3]),
    st.sampled_from(sorted(TABLES)), st.booleans(), st.integers(0, 3),
)  # fmt: skip
@example((32, 32), (224, 224), False, 2, "as they are", True, 0)
@example((32, 32), (33, 64), False, 2, "of bytes", False, 1)
@example((32, 32), (70, 63), False, 3, "torch.float32", False, 1)
@example((40, 25), (100, 100), False, 3, "torch.float32", True, 0)
def test_enlarged_images_are_looked_up_channel_by_channel(size, wanted, lead, chosen, name, alike, cut_off):
    batch, table = bytes_of(3, size, True, seed=sum(size), lead=lead), TABLES[name]
    window = [0, 0, *size] if alike else [0, cut_off % size[1], size[0], size[1] - cut_off % size[1]]
    boxes = torch.tensor([[0, 0, *size], window, [0, 0, *size]])
    program = native.Program([native.resample(boxes, wanted, chosen), native.look_up(table)])
    out = program.new(batch, 3, RecycledMemory())
    program.run(batch, None, 0, 3, out, threads=2)
    for image, (_, left, _, width), one in zip(batch, boxes.tolist(), program.seen(batch, out), strict=True):
        pixels = Image.fromarray(image[:, left : left + width].contiguous().numpy())
        made = torch.from_numpy(np.array(pixels.resize(wanted[::-1], chosen))).permute(2, 0, 1)
        rows = table.expand(3, 256)
        assert torch.equal(torch.stack([row[plane.long()] for row, plane in zip(rows, made, strict=True)]), one)


def test_a_window_a_hundred_times_as_tall_as_wide_is_left_to_pillow():
    assert native.resample(torch.tensor([[0, 0, 301, 3]]), (4, 4), 2) is None
    assert native.resample(torch.tensor([[0, 0, 300, 3]]), (4, 4), 2) is not None


def test_other_filters_are_left_to_pillow():
    assert [chosen for chosen in range(6) if native.resamples(chosen)] == [2, 3]


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int8, torch.uint8]
)
@pytest.mark.parametrize("colored", [False, True])
@pytest.mark.parametrize("lead", [False, True])
@pytest.mark.parametrize("size", [(5, 7), (16, 13)])
@pytest.mark.slow
def test_a_table_of_any_type_is_looked_up(dtype, colored, lead, size):
    batch = bytes_of(3, size, colored, seed=1, lead=lead)
    channels = 3 if colored else 1
    tables = [(50 * torch.randn(number, 256)).to(dtype) for number in (channels, 1)]
    for values in (*tables, torch.arange(256).expand(channels, 256).to(dtype).contiguous()):
        made = native.operated(native.look_up(values), batch)
        planes = batch.permute(0, 3, 1, 2) if colored else batch[:, None]
        wanted = torch.stack(
            [values[channel % len(values)][planes[:, channel].long()] for channel in range(channels)], 1
        )
        assert torch.equal(made, wanted)
        assert made.is_contiguous()


TENSOR = T.ToTensor()


@pytest.mark.slow
@pytest.mark.parametrize("steps", [0, 1, 87, 128, 255])
@pytest.mark.few(1)
def test_every_color_is_turned_round_as_pillow_turns_it(steps):
    channel = np.arange(256, dtype=np.uint8)
    colors = np.stack(np.meshgrid(channel, channel, channel, indexing="ij"), -1).reshape(4096, 4096, 3)
    strengths = torch.tensor([[-1.0, -1.0, -1.0, steps]])
    made = native.operated(native.jitter(torch.tensor([[3, 0, 1, 2]]), strengths), torch.from_numpy(colors)[None])
    turned = np.array(Image.fromarray(colors).convert("HSV"))
    turned[..., 0] += np.uint8(steps)
    wanted = Image.frombytes("HSV", (4096, 4096), turned.tobytes()).convert("RGB")
    assert np.array_equal(made[0].numpy(), np.asarray(wanted))


CHAINS = {
    "photographs": (T.RandomResizedCrop(24), T.RandomHorizontalFlip(), TENSOR, T.Normalize((0.5,), (0.2,))),
    "cropped": (T.RandomCrop(28, padding=4, fill=(3, 2, 1)), T.RandomVerticalFlip(), T.RandomHorizontalFlip(), TENSOR),
    "colors": (T.Resize(40), T.ColorJitter(0.4, 0.4, 0.4), T.RandomCrop(30), TENSOR, T.Normalize((0.5,), (0.2,))),
    "bytes": (T.Resize((31, 29)), T.RandomHorizontalFlip(), T.PILToTensor()),
    "enlarged": (T.Resize((80, 96)), T.PILToTensor()),
    "enlarged and changed": (T.Resize(90), T.ColorJitter(0.4, 0.4, 0.4), TENSOR, T.Normalize((0.5,), (0.2,))),
    "enlarged and turned": (T.RandomResizedCrop(70), T.RandomHorizontalFlip(), T.ColorJitter(0.4), TENSOR),
    "hue between": (T.RandomCrop(24), T.ColorJitter(0.4, 0.4, 0.4, 0.2), T.RandomHorizontalFlip(), TENSOR),
    "hue last": (T.RandomVerticalFlip(), T.ColorJitter(hue=0.5), TENSOR),
    "erased": (T.RandomHorizontalFlip(), T.ColorJitter(0.4), TENSOR, T.RandomErasing(1.0)),
}  # fmt: skip


def steps_of(chain) -> Steps:
    form, kernels = SampleForm("image", "RGB"), []
    for operation in chain:
        kernels.append(kernel_for(operation, form))
        form = kernels[-1].after
    return Steps(kernels)


def forget() -> None:
    native._pillows_way.cache_clear()
    color._compiled_as_pillow.cache_clear()


def made_of(steps: Steps, value) -> torch.Tensor:
    return steps.run(value, torch.Generator().manual_seed(4))


@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize("several_threads", [False, True])
@pytest.mark.few(53)
@pytest.mark.slow
def test_a_chain_gives_what_it_gives_without_compiled_code(name, several_threads, monkeypatch):
    monkeypatch.setattr("flatout.pipeline.compile.native_steps._THREAD_BYTES", 1 if several_threads else 2**40)
    batch = bytes_of(37, (36, 33), colored=True, seed=3)
    places = torch.randperm(37)[:20]
    chosen = RowView(batch, places, lambda wanted: batch[wanted])
    alone = [batch[place : place + 1] for place in range(37)]
    steps = steps_of(CHAINS[name])
    made, made_chosen, made_alone = (made_of(steps, value) for value in (batch, chosen, alone))
    with monkeypatch.context() as patch:
        patch.setattr(native, "compiled", None)
        forget()
        plain = steps_of(CHAINS[name])
        assert not any(step.compiled for step in plain._steps)
        wanted, wanted_chosen = made_of(plain, batch), made_of(plain, batch[places])
    forget()
    assert any(step.compiled for step in steps._steps)
    for one, other in ((made, wanted), (made_chosen, wanted_chosen), (made_alone, wanted)):
        assert torch.equal(one, other)
        assert one.stride() == other.stride()


def test_images_of_several_sizes_become_one_batch(monkeypatch):
    alone = [bytes_of(1, (20 + place, 50 - place), colored=True, seed=place) for place in range(9)]
    made = made_of(steps_of(CHAINS["photographs"]), alone)
    with monkeypatch.context() as patch:
        patch.setattr(native, "compiled", None)
        forget()
        wanted = made_of(steps_of(CHAINS["photographs"]), alone)
    forget()
    assert torch.equal(made, wanted)
    with pytest.raises(Unsuited, match="several shapes"):
        made_of(steps_of([T.RandomHorizontalFlip(), TENSOR]), alone)


RESIZED = [T.Resize((12, 9), antialias=True)]


@pytest.mark.parametrize("several_threads", [False, True])
@pytest.mark.parametrize("lead", [False, True])
def test_what_becomes_of_images_is_written_to_its_places(lead, several_threads, monkeypatch):
    monkeypatch.setattr("flatout.pipeline.compile.native_steps._THREAD_BYTES", 1 if several_threads else 2**40)
    batch = bytes_of(20, (36, 33), colored=True, seed=3, lead=lead)
    steps, places = steps_of(RESIZED), torch.randperm(37)[:20]
    wanted = steps.run(batch)
    room = torch.full((37, 3, 12, 9) if lead else (37, 12, 9, 3), 7, dtype=torch.uint8)
    rows = room.permute(0, 2, 3, 1) if lead else room
    assert steps.write(batch, RowView(rows, places, lambda wanted: rows[wanted]))
    assert torch.equal(rows[places], wanted)
    others = torch.ones(37, dtype=torch.bool).index_fill(0, places, value=False)
    assert bool((room[others] == 7).all())


ENLARGED = {"bytes": [T.Resize((80, 96)), T.PILToTensor()], "fractions": [T.Resize((80, 96)), TENSOR]}


@pytest.mark.parametrize("lead", [False, True])
@pytest.mark.parametrize("name", ENLARGED)
def test_enlarged_images_are_written_to_places_and_to_several_batches(name, lead):
    batch, places = bytes_of(20, (36, 33), colored=True, seed=5, lead=lead), torch.randperm(37)[:20]
    steps = steps_of(ENLARGED[name])
    wanted = steps.run(batch)
    room = torch.full((37, *wanted.shape[1:]), 7, dtype=wanted.dtype)
    assert steps.write(batch, RowView(room, places, lambda wanted: room[wanted]))
    assert torch.equal(room[places], wanted)
    others = torch.ones(37, dtype=torch.bool).index_fill(0, places, value=False)
    assert bool((room[others] == 7).all())
    rows = torch.randperm(20)[:15]
    one, several = steps.made_of_rows(batch)
    batches = several.several(rows, 4)
    assert [len(made) for made in batches] == [4, 4, 4, 3]
    assert torch.equal(one(rows), wanted[rows])
    assert torch.equal(torch.cat(batches), wanted[rows])
    assert one(rows).stride() == batches[0].stride() == wanted.stride()


@pytest.mark.parametrize("wrong", [-1, 9])
def test_nothing_is_written_beyond_the_rows(wrong):
    room = torch.zeros(9, 12, 9, 3, dtype=torch.uint8)
    with pytest.raises(IndexError, match="of 9"):
        steps_of(RESIZED).write(bytes_of(2, (6, 6), colored=True, seed=0), RowView(room, torch.tensor([3, wrong]), len))
    assert not room.any()


@pytest.mark.parametrize(
    ("chain", "room", "number"),
    [
        (RESIZED, torch.zeros(9, 3, 12, 9, dtype=torch.uint8), 2),  # the channels elsewhere
        (RESIZED, torch.zeros(9, 12, 9, 3, dtype=torch.int16), 2),
        (RESIZED, torch.zeros(9, 12, 9, 3, dtype=torch.uint8), 3),  # more images than places
        (CHAINS["photographs"], torch.zeros(9, 12, 9, 3, dtype=torch.uint8), 2),  # random
    ],
)
def test_what_lies_otherwise_is_written_by_others(chain, room, number):
    batch = bytes_of(number, (6, 6), colored=True, seed=0)
    assert not steps_of(chain).write(batch, RowView(room, torch.tensor([3, 1]), len))
    assert not room.any()


@pytest.mark.parametrize("wrong", [-1, 9])
def test_a_place_beyond_the_rows_is_an_error_and_nothing_is_read_there(wrong):
    rows = bytes_of(9, (6, 6), colored=True, seed=0)
    chosen = RowView(rows, torch.tensor([3, wrong, 0]), lambda wanted: rows[wanted])
    with pytest.raises(IndexError, match="of 9"):
        steps_of([TENSOR]).run(chosen)


@pytest.mark.parametrize("box", [[-1, 0, 3, 3], [0, 3, 3, 4], [4, 0, 3, 3], [0, 0, 0, 3]])
def test_a_window_beyond_the_image_is_an_error(box):
    batch = bytes_of(1, (6, 6), colored=True, seed=0)
    with pytest.raises(ValueError, match="window"):
        native.operated(native.resample(torch.tensor([box]), (4, 4), 2), batch)


def test_another_default_type_of_numbers_is_followed():
    steps, batch = steps_of([TENSOR]), bytes_of(2, (4, 4), colored=True, seed=0)
    assert steps.run(batch).dtype is torch.float32
    torch.set_default_dtype(torch.float64)
    try:
        made = steps.run(batch)
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.equal(made, batch.permute(0, 3, 1, 2).double() / 255)


def test_a_batch_is_in_memory_of_its_own_while_it_is_held():
    steps = steps_of(CHAINS["photographs"])
    batch = bytes_of(300, (40, 40), colored=True, seed=0)
    first = made_of(steps, batch)
    kept = first.clone()
    steps.run(batch, torch.Generator().manual_seed(5))
    assert torch.equal(first, kept)


def test_work_is_shared_and_each_number_done_once():
    done, seen = [], set()

    def one(number: int) -> None:
        done.append(number)
        seen.add(threading.get_ident())

    before = threading.active_count()
    shared(one, 1000, 4)
    assert sorted(done) == list(range(1000))
    assert len(seen) <= 4
    assert threading.active_count() == before
    shared(one, 0, 4)
    shared(one, 1, 1)
    assert done[-1] == 0


def test_ranks_of_one_machine_divide_its_cores(monkeypatch):
    monkeypatch.setattr("flatout.pipeline.compile.parallel.usable_cores", lambda: 16)
    assert cores_of_this_rank() == 16
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "8")
    assert cores_of_this_rank() == 2
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "32")
    assert cores_of_this_rank() == 1


def test_what_work_raises_comes_out_and_the_rest_is_left():
    def one(number: int) -> None:
        if number == 7:
            raise KeyError(number)

    with pytest.raises(KeyError, match="7"):
        shared(one, 100, 4)
