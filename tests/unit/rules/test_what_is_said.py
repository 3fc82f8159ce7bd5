"""Numbers and words of single findings: what they count, what they are of, and what is not known and not said."""

from dataclasses import replace

import pytest

from flatout.rules import catalog, example, line
from flatout.rules.core.example import steps_of
from flatout.schema.facts import HELD_INPUT
from flatout.schema.phase import Phase
from flatout.schema.run import (
    Causes,
    Ceiling,
    CompiledFunction,
    CompiledTrial,
    Environment,
    Frame,
    LoaderFacts,
    MicroBatches,
    Outside,
    SamplePrefix,
    Stage,
    Utilization,
)

RULES = {rule.code: rule for rule in catalog()}


def said(code, **known):
    truth = example(**known)
    return RULES[code].check(truth.run, truth.breakdown, truth.headroom)


def number(finding, label):
    return next(each.value for each in finding.evidence if each.name == label)


def stretches(phase, first_after, count, ms=50, **detail):
    """Stretches one behind the other, behind a step of 50 ms, of which so many have passed."""
    begin = first_after * 50_000_000
    return [
        Outside(phase=phase, start_ns=begin - 10_000_000 + i * 1000, wall_ns=ms * 1_000_000, **detail)
        for i in range(count)
    ]


@pytest.mark.parametrize(("code", "one"), [("EP001", "one validation"), ("EP002", "one validation")])
def test_a_validation_is_a_pass_and_not_a_batch(code, one):
    outside = [
        *stretches(Phase.VALIDATION, 40, 20, num_batches=1, with_grad=True),
        *stretches(Phase.VALIDATION, 80, 20, num_batches=1, with_grad=True),
    ]
    found = said(code, step_ms=50, n=100, forward=40, outside=outside)
    assert "n=2)" in found.message
    assert number(found, one) == pytest.approx(1.0)
    if code == "EP001":
        assert number(found, "batches of one validation") == 20


def test_the_end_of_a_pass_and_what_comes_behind_it_are_one_gap():
    outside = [*stretches(Phase.EPOCH_GAP, 40, 3, ms=200), *stretches(Phase.EPOCH_GAP, 80, 3, ms=200)]
    found = said("EP004", step_ms=50, n=100, forward=40, outside=outside)
    assert "n=2)" in found.message
    assert (number(found, "gaps"), number(found, "one gap")) == (2, pytest.approx(0.6))


def test_what_first_batches_of_workers_took_longer_in_a_whole_training_is_no_work_of_the_script_s_own():
    outside = stretches(Phase.EPOCH_GAP, 40, 1, ms=600, num_batches=1)
    for workers in (0, 2):
        loader = LoaderFacts(is_training=True, num_workers=workers, persistent_workers=workers > 0)
        found = said("EP004", step_ms=50, n=100, forward=40, outside=outside, loaders=(loader,))
        assert (found is None) is (workers > 0)


def test_workers_harm_by_all_batches_of_a_step():
    loader = LoaderFacts(is_training=True, num_workers=2, sample_s=0.005, collate_s=0.001, fetches=80)
    found = said("IN010", step_ms=100, input=60, forward=30, num_batches=4, loaders=(loader,))
    assert found.share == pytest.approx(0.6)
    assert found.max_speedup == pytest.approx(1 / (1 - 0.6 * (1 - 6 / 15)))


@pytest.mark.parametrize(("high", "gone"), [(4.1, 0.75 - 0.24), (6.0, 0.6 - 0.24)])
def test_what_went_with_a_batch_held_goes_without_workers_but_for_making_it(high, gone):
    loader = LoaderFacts(is_training=True, num_workers=2, sample_s=0.005, collate_s=0.001, fetches=80)
    held = Ceiling(ceiling=HELD_INPUT, median_ms=25.0, speedup=4.0, low=3.9, high=high, num_pairs=8)
    options = {"input": 60, "forward": 30, "num_batches": 4, "loaders": (loader,), "headroom": (held,)}
    assert said("IN010", step_ms=100, **options).max_speedup == pytest.approx(1 / (1 - gone))


def test_work_that_is_cropped_away_is_a_part_of_the_sample_and_the_sample_one_of_the_batch():
    stages = (
        Stage(name="ColorJitter", library="torchvision", seconds=0.010, pixels_before=512**2, pixels_after=512**2),
        Stage(name="RandomCrop", library="torchvision", seconds=0.0, pixels_before=512**2, pixels_after=128**2),
    )
    loader = LoaderFacts(
        is_training=True, batch_size=1, sample_s=0.010, collate_s=0.030, fetches=40, stages=stages,
        prefix=SamplePrefix(checked=4, seconds=0.010),
    )  # fmt: skip
    known = {"step_ms": 100, "input": 80, "forward": 15}
    found = said("IN014", **known, loaders=(loader,))
    assert found.share == pytest.approx(0.8 * (1 - 1 / 16) / 4)
    assert said("IN014", **known, loaders=(replace(loader, collate_s=0.090),)) is None


def forward_in(leaf, function="run"):
    frames = ("model.py", 20, "Net.forward"), ("train.py", 44, "main")
    seen = line(3.0, *frames, phase=Phase.FORWARD, leaf=leaf, leaf_function=function)
    rest = line(1.0, ("model.py", 22, "Net.forward"), ("train.py", 44, "main"), phase=Phase.FORWARD, leaf="torch")
    return said("CO004", step_ms=100, forward=20, backward=60, lines=(seen, rest))


def test_what_leaves_torch_has_no_backward_pass_to_give():
    assert forward_in("numpy").max_speedup == pytest.approx(1 / (1 - 0.2 * 0.75))


def test_a_library_that_is_made_of_torch_does_not_leave_it():
    assert forward_in("transformers") is None
    assert forward_in("transformers", "_batch_encode_plus") is not None


@pytest.mark.parametrize(
    ("error", "speaks"),
    [
        ("RuntimeError: DataLoader worker is killed by signal: Bus error. It is possible that dataloader's workers are "
         "out of shared memory. Please try to raise your shared memory limit.", True),
        ("RuntimeError: unable to allocate shared memory(shm) for file </torch_7>: Resource unavailable", True),
        ("OutOfResources: out of resource: shared memory, Required: 131072, Hardware limit: 101376.", False),
    ],
)  # fmt: skip
def test_the_shared_memory_of_a_kernel_is_not_that_of_the_system(error, speaks):
    from flatout.schema.run import End

    loader = LoaderFacts(num_workers=2, batch_bytes=1000)
    found = said("IN013", loaders=(loader,), end=End(reason="script failed", error=error))
    assert (found is not None) is speaks


def test_what_is_left_uncompiled_is_told_before_what_only_took_longer():
    slow = CompiledFunction(place=Frame("a.py", 1, "a"), compilations=5, again=4, again_s=0.4, seconds=1.0, limit=8)
    left = CompiledFunction(place=Frame("b.py", 1, "b"), compilations=8, again=2, again_s=0.1, seconds=1.0, limit=8)
    causes = Causes(compiled=(slow, left), num_steps=60, phases_s={"forward": 10.0})
    found = said("CO006", step_ms=100, forward=50, causes=causes)
    assert found.location.file == "b.py"
    assert "left uncompiled" in found.message


def test_a_trial_of_another_model_says_nothing_of_what_is_left_uncompiled():
    left = CompiledFunction(place=Frame("b.py", 1, "b"), compilations=8, again=2, again_s=0.1, seconds=1.0, limit=8)
    trial = CompiledTrial(model="Net", place=left.place, n=7, written_s=0.1, compiled_s=0.05)
    other = replace(trial, place=Frame("net.py", 9, "forward"))
    own, foreign = (
        said(
            "CO006",
            step_ms=100,
            forward=50,
            causes=Causes(compiled=(left,), compiled_trial=one, num_steps=60, phases_s={"forward": 10.0}),
        )
        for one in (trial, other)
    )
    assert own.max_speedup > 1.2
    assert foreign.max_speedup == 1.0


def test_a_hot_device_is_nothing_to_a_training_on_the_cpu():
    looks = tuple(Utilization(at_s=0.5 * i, gpu_clock_mhz=1200, gpu_throttled="thermal") for i in range(12))
    assert said("MS004", step_ms=100, utilization=looks, environment=Environment(device_kind="cuda")) is not None
    assert said("MS004", step_ms=100, utilization=looks, environment=Environment(device_kind="cpu")) is None


def test_a_device_whose_time_was_not_measured_was_not_busy_for_nothing():
    found = said("SY001", step_ms=100, sync=20, forward=60, environment=Environment(device_kind="cuda"))
    assert "device busy" not in [each.name for each in found.evidence]


def test_the_size_of_what_is_kept_is_told_where_it_is_the_sample_itself():
    prefix = SamplePrefix(checked=8, deterministic=True, prefix_share=1.0, seconds=0.0009, sample_bytes=49_152)
    for deterministic in (True, False):
        loader = LoaderFacts(
            is_training=True, batch_size=64, num_samples=10_000, sample_s=0.055, fetches=30,
            prefix=replace(prefix, deterministic=deterministic),
        )  # fmt: skip
        found = said("IN007", step_ms=100, input=60, forward=30, loaders=(loader,))
        assert ("for all 10000 samples" in found.message) is deterministic


def test_growth_of_memory_counts_steps_and_not_what_is_kept_of_them():
    looks = tuple(Utilization(at_s=0.5 * i, private_bytes=(600 + 40 * i) << 20) for i in range(16))
    one, four = (
        said("ME002", steps=steps_of([{Phase.FORWARD: 100}] * 80), utilization=looks, steps_each=each)
        for each in (1, 4)
    )
    assert number(four, "growth of a step") == pytest.approx(number(one, "growth of a step") / 4)


def test_threads_of_the_data_set_are_not_denied():
    loader = LoaderFacts(is_training=True, batch_size=32, sample_s=0.16, sample_cpu_s=0.004, fetches=40)
    assert ", with 1 in flight" in said("IN012", step_ms=200, input=161, forward=30, loaders=(loader,)).message
    pooled = replace(loader, has_getitems=True)
    assert "in flight" not in said("IN012", step_ms=200, input=161, forward=30, loaders=(pooled,)).message


def test_what_the_cores_do_meanwhile_is_no_wait():
    loader = LoaderFacts(is_training=True, batch_size=32, sample_s=0.16, sample_cpu_s=0.004, fetches=40)
    looks = tuple(Utilization(at_s=0.5 * i, main_cpu=0.8) for i in range(16))
    facts = {"step_ms": 200, "input": 161, "forward": 30, "loaders": (loader,), "environment": Environment(num_cpus=2)}
    assert said("IN012", **facts).max_speedup > 4
    assert said("IN012", **facts, utilization=looks).max_speedup == pytest.approx(2 / 0.8)


def test_lists_of_numbers_for_the_default_collate_function_are_named_where_they_are_returned(tmp_path):
    path = tmp_path / "data.py"
    path.write_text("class Rows:\n    def __getitem__(self, i):\n        row = rows[i]\n        return row, i\n")
    prefix = SamplePrefix(checked=4, numbers=25, made_at=Frame(str(path), 2, "Rows.__getitem__"))
    loader = LoaderFacts(is_training=True, batch_size=32, sample_s=0.01, collate_s=0.03, fetches=40, prefix=prefix)
    found = said("IN004", step_ms=100, input=40, forward=50, loaders=(loader,))
    assert (found.location.line, found.location.function) == (4, "Rows.__getitem__")
    assert "returns 25 Python numbers a sample" in found.message
    few = replace(loader, prefix=replace(prefix, numbers=2), created_at=Frame("train.py", 9, "main"))
    assert said("IN004", step_ms=100, input=40, forward=50, loaders=(few,)).location.line == 9


def test_cores_that_workers_take_from_the_training_are_said():
    loader = LoaderFacts(is_training=True, num_workers=2, batch_size=64, fetches=60)
    busy = [Utilization(at_s=0.5 * i, main_cpu=0.65, worker_cpu=1.3) for i in range(12)]
    seen = [line(6.0, ("data.py", 34, "decode"), process="worker", stage="sample")]
    found = said(
        "IN003",
        step_ms=100,
        input=8,
        forward=80,
        loaders=(loader,),
        lines=seen,
        environment=Environment(num_cpus=2, torch_threads=1),
        utilization=busy,
    )
    assert "workers that take 1.3 of the 2 cores from the training" in found.message
    assert number(found, "cores used by workers") == pytest.approx(1.3)
    assert found.max_speedup == pytest.approx(1 / 0.65)


SPLIT_SOURCE = """\
def train():
    for x, y in loader:
        for part in x.split(4):
            loss(model(part)).backward()
        optimizer.step()
def accumulate():
    for i, (x, y) in enumerate(loader):
        loss(model(x)).backward()
        if i % 16 == 0:
            optimizer.step()
def inner(part):
    return model(part)
"""


@pytest.mark.parametrize(
    ("stack", "named"),
    [
        ([(4, "train")], 3),
        ([(8, "accumulate")], 8),  # the loader's own loop: the call of the model
        ([(12, "inner"), (4, "train")], 3),
        ([(12, "inner")], 12),
    ],
)
def test_small_micro_batches_are_named_at_their_loop(tmp_path, stack, named):
    path = tmp_path / "train.py"
    path.write_text(SPLIT_SOURCE)
    frames = tuple(Frame(str(path), at, name) for at, name in stack)
    cut = MicroBatches(count=16, rows=4, joined=16, n=7, apart_s=0.002, together_s=0.0004, stack=frames)
    found = said("ME006", step_ms=40, forward=14, backward=18, causes=Causes(num_steps=60, micro_batches=cut))
    assert found.location.line == named
    assert found.max_speedup == pytest.approx(1 / (1 - 0.8 * 0.8))
    assert "32.0 ms one by one and 6.40 ms with all put together (n=7)" in found.message


def test_a_busy_machine_is_told_with_what_it_made_of_the_steps():
    looks = tuple(Utilization(at_s=0.5 * i, main_cpu=0.6, foreign_cpu=1.4, core_wait=0.4) for i in range(12))
    message = said("MS001", step_ms=100, forward=50, utilization=looks, environment=Environment(num_cpus=2)).message
    assert message.startswith("Other processes used 1.40 of 2 cores while the steps ran (n=12), and the training ")
    assert "waited for a core 40% of the time (steps take at least 1.67x as long): take the figures" in message
    assert "Lines, counts and the shares of what computes stand" in message


def test_a_spread_of_the_steps_own_is_no_other_program():
    uneven = steps_of([{Phase.FORWARD: (40, 50, 70)[i // 7 % 3]} for i in range(60)])
    message = said("MS001", steps=uneven).message
    assert message.startswith(
        "Half of the steps lie more than 20% off their median (n=60), so that the mean is known to "
    )
    assert message.endswith(
        "Look for batches of different length, work in every Nth step, or a host that others share."
    )
