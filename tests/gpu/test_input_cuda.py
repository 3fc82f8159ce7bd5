"""Compiled input on a real CUDA device: the bits of the CPU, at the right time."""

import pytest

from tests.unit.fixes.training import under

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]

from torch.utils.data import DataLoader, TensorDataset

from flatout.pipeline import compile_loader
from flatout.pipeline.compile.pointwise_table import table_of
from flatout.pipeline.device.batch_tensors import replaced, tensors_of
from flatout.watch.dataset_state import same
from tests.unit.pipeline.compile.test_batch_compiler import Pictures
from tests.unit.pipeline.device.test_device_pass import (
    AUGMENTED,
    CHAINS,
    ONLY_ON_CPU,
    RESIZED,
    UNKNOWN,
    steps,
)

SLEEP = 20_000_000  # cycles, some 10 ms: the host is far ahead of the device


def passes(loader, look, number=3):
    torch.manual_seed(0)
    return [look(batch) for _ in range(number) for batch in loader]


def there(batch):
    return replaced(batch, lambda leaf: leaf.to("cuda") if isinstance(leaf, torch.Tensor) else leaf)


@pytest.mark.parametrize("room", [None, 0])
@pytest.mark.parametrize("transform", [RESIZED, AUGMENTED, UNKNOWN, ONLY_ON_CPU])
@pytest.mark.parametrize("options", [{}, {"pin_memory": True}, {"num_workers": 1}])
def test_batches_have_the_bits_and_strides_of_copies_of_the_cpu_s(transform, room, options):
    plain = DataLoader(Pictures(transform), batch_size=7, shuffle=True, **options)
    wanted = passes(plain, there)
    found = passes(compile_loader(plain, device="cuda", max_device_bytes=room), lambda batch: batch)
    assert same(found, wanted)


@pytest.mark.parametrize("room", [None, 0])
def test_memory_is_not_used_again_before_the_device_is_done_with_it(room):
    rows = torch.randint(0, 256, (512, 3, 64, 64), dtype=torch.uint8)
    loader = DataLoader(TensorDataset(rows, torch.arange(512)), batch_size=16)
    wanted = [int(batch.long().sum()) for batch, _ in loader]

    def look(batch):
        torch.cuda._sleep(SLEEP)
        sums = batch[0].long().sum(), batch[1].sum()
        batch.clear()
        return sums

    compiled = compile_loader(loader, device="cuda", max_device_bytes=room)
    for _ in range(3):
        assert [int(total) for total, _ in passes(compiled, look, 1)] == wanted


@pytest.mark.parametrize(("operations", "form", "shape"), CHAINS)
def test_a_table_gives_the_bits_of_the_cpu(operations, form, shape):
    found = steps(operations, form)
    batch = torch.randint(0, 256, (6, *shape), dtype=torch.uint8)
    table = table_of(found, batch[:1])
    assert same(table.run(batch.cuda()).cpu(), table.run(batch))


def test_batches_travel_in_pinned_memory_that_is_used_again():
    compiled = compile_loader(DataLoader(Pictures(RESIZED), batch_size=7), device="cuda", max_device_bytes=0)
    passes(compiled, lambda batch: None, 20)
    slots = compiled._device._ring._slots
    assert 1 <= len(slots) <= 3
    assert all(slot.memory.is_pinned() for slot in slots)


def test_no_more_of_the_device_is_taken_than_was_given():
    rows = torch.zeros((64, 1024, 1024), dtype=torch.uint8)
    loader = DataLoader(TensorDataset(rows), batch_size=1)
    for room, kept in ((80 * 1024**2, True), (60 * 1024**2, False)):
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        compiled = compile_loader(loader, device="cuda", max_device_bytes=room)
        passes(compiled, lambda batch: None, 2)
        taken = torch.cuda.max_memory_allocated() - before
        assert ("on cuda:0" in compiled.explain()) is kept
        assert taken <= room + 8 * 1024**2
        del compiled


def test_a_script_under_the_fix_sees_what_it_would_see():
    def script(batch):
        image = batch["image"].cuda()
        torch.cuda._sleep(SLEEP // 10)
        kept = image.clone()
        image.zero_()
        again = batch["image"].to("cuda", non_blocking=True)
        return kept, again, batch["label"].to(torch.device("cuda")), batch["name"]

    def looking(batch):
        return batch["image"].cuda(), batch["image"].mean(), batch["image"].numpy().copy(), batch["label"].tolist()

    torch.zeros(1).cuda()
    for look in (script, looking):
        for options in ({}, {"pin_memory": True}):
            loader = DataLoader(Pictures(RESIZED), batch_size=7, shuffle=True, **options)
            wanted = passes(loader, look)
            with under("device-resident-input") as process:
                assert same(passes(loader, look), wanted)
                assert process.site.hits["DataLoader"] == 15
                assert (process.site.hits.get("there already", 0) > 13) is (look is script)


def test_a_batch_that_was_never_looked_at_takes_nothing_of_the_cpu_and_is_let_go():
    torch.zeros(1).cuda()
    loader = DataLoader(Pictures(RESIZED), batch_size=7)
    with under("device-resident-input"):
        passes(loader, lambda batch: batch["image"].cuda() is None)
        before = torch.cuda.memory_allocated()
        passes(loader, lambda batch: batch["image"].cuda() is None, 20)
        torch.cuda.synchronize()
        assert torch.cuda.memory_allocated() <= before + 10 * sum(t.nbytes for t in tensors_of(next(iter(loader))))
