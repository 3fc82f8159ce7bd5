"""What a finding must not say of scripts that look like its fault and are not, or whose cure would train otherwise."""

from dataclasses import replace

import pytest

from flatout.rules import catalog, examine, example, line
from flatout.rules.core.catalog import rule_of
from flatout.rules.core.framework_settings import setting_sentence
from flatout.rules.facts.device_waits import device_ms
from flatout.rules.facts.worker_facts import workers_harm
from flatout.schema.facts import HELD_INPUT
from flatout.schema.finding import Ceiling, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import (
    Arithmetic,
    Causes,
    CollectorFacts,
    Denormals,
    DeviceWork,
    Environment,
    Frame,
    LoaderFacts,
    ModelFacts,
    OptimizerFacts,
    SamplePrefix,
    SettingTrial,
    SlowReduction,
    Stage,
    Transfer,
    WorkerFacts,
)

RULES = {rule.code: rule for rule in catalog()}
GPU = Environment(device="NVIDIA H200", device_kind="cuda", num_devices=1)
PLACE = Frame("train.py", 41, "train")


def said(code, **known):
    truth = example(**known)
    return RULES[code].check(truth.run, truth.breakdown, truth.headroom)


def rule_giving(finding):
    return replace(rule_of(finding.code), check=lambda *_: finding)


def finding(code, *, share, most=2.0, phase=Phase.INPUT):
    return Finding(code=code, name="x", phase=phase, share=share, max_speedup=most, message="n=1")


def codes(*findings, headroom=()):
    truth = example(input=60)
    found = examine(truth.run, truth.breakdown, headroom, [rule_giving(each) for each in findings]).findings
    return [each.code for each in found]


def test_what_both_runs_spend_on_letting_go_of_a_batch_is_no_reading_from_memory():
    loader = LoaderFacts(is_training=True, num_workers=2, sample_s=0.003, fetches=20)
    let_go = line(0.06, ("train.py", 9, "main"), stage="handover")
    causes = Causes(num_steps=10, phases_s={"input": 10 * 0.004}, lines=(let_go,))
    known = {"step_ms": 30, "input": 10, "forward": 20, "loaders": (loader,)}
    truth = example(**known, causes=causes)
    assert workers_harm(truth.run, truth.breakdown) is not None


@pytest.mark.parametrize(("deep_wait_s", "harm"), [(0.04, False), (0.24, True)])
def test_samples_that_the_deep_run_found_in_memory_say_nothing_against_workers(deep_wait_s, harm):
    loader = LoaderFacts(is_training=True, num_workers=8, sample_s=0.04, fetches=20)
    causes = Causes(num_steps=10, phases_s={"input": 10 * deep_wait_s})
    truth = example(step_ms=300, input=250, forward=50, loaders=(loader,), causes=causes)
    assert (workers_harm(truth.run, truth.breakdown) is not None) is harm


@pytest.mark.parametrize(("phase", "told"), [(Phase.EPOCH_GAP, ["IN001", "IN009"]), (Phase.INPUT, ["IN009"])])
def test_what_happens_between_epochs_explains_no_wait_within_the_step(phase, told):
    workers = finding("IN009", share=0.5, most=1.5, phase=phase)
    assert codes(finding("IN001", share=0.6, most=2.5), workers) == told


def test_a_cause_that_a_ceiling_takes_away_explains_nothing():
    waits, slow = (replace(finding(code, share=0.5), location=PLACE) for code in ("SY002", "SY001"))
    assert codes(waits, slow) == ["SY002"]  # at the same line
    refuted = replace(waits, phase=Phase.INPUT)
    told = replace(slow, phase=Phase.HOST)
    nothing = Ceiling(ceiling=HELD_INPUT, median_ms=5.0, speedup=1.0, low=0.99, high=1.01, num_pairs=8)
    assert codes(refuted, told, headroom=(nothing,)) == ["SY001"]


@pytest.mark.parametrize(
    ("products", "share"),
    [(5e11, 0.22), (2.2e12, 0.99), (2.5e12, 0.37)],  # three times; more than the step: once, as of frozen layers
)
def test_products_never_take_longer_than_the_step(products, share):
    found = Arithmetic(
        flops={"matmul float32": products}, float32_flops_s=67e12, tf32_possible=True, matmul_precision="highest"
    )
    truth = said("CO010", step_ms=100, forward=30, backward=60, environment=GPU, causes=Causes(arithmetic=found))
    assert truth.share == pytest.approx(share, abs=0.01)


def test_one_number_of_float64_changes_no_type():
    mixed = ModelFacts(name="Clip", dtypes=("float32", "float64"))
    assert said("CO002", step_ms=100, forward=30, backward=50, models=(mixed,)) is None
    wide = ModelFacts(name="Clip", dtypes=("float64", "float32"))
    assert said("CO002", step_ms=100, forward=30, backward=50, models=(wide,)) is not None


@pytest.mark.parametrize(
    ("operation", "care"), [("linalg_vector_norm", "add 1e-12"), ("var", "rounded"), ("argmax", "")]
)
def test_the_other_way_of_a_reduction_is_told_with_what_differs(operation, care):
    slow = SlowReduction(
        place=PLACE, operation=operation, instead="x", seconds=0.006, whole_s=0.008, alone_s=0.006, other_s=0.0002
    )
    causes = Causes(num_steps=40, phases_s={"forward": 0.4, "backward": 0.4}, reductions=(slow,))
    message = said("CO020", step_ms=20, forward=10, backward=9, causes=causes).message
    assert care in message
    assert ("rounded" in message) is bool(care)


@pytest.mark.parametrize(("name", "told"), [("AdamW", True), ("SGD", False)])
def test_the_trainers_setting_of_an_optimizer_is_told_of_that_optimizer_alone(name, told):
    run = example(optimizers=(OptimizerFacts(name=name),), causes=Causes(framework="transformers")).run
    assert ("adamw_torch_fused" in setting_sentence(rule_of("CO001"), run)) is told


def cropping(*stages):
    loader = LoaderFacts(
        is_training=True, batch_size=32, fetches=40, prefix=SamplePrefix(checked=4, seconds=0.02), stages=stages
    )
    return said("IN014", step_ms=800, input=650, forward=100, loaders=(loader,))


def stage(name, ms, before, after):
    return Stage(name=name, library="torchvision", seconds=ms / 1e3, pixels_before=before**2, pixels_after=after**2)


def test_a_crop_from_a_resized_image_shows_the_same_part_of_it():
    assert cropping(stage("Resize", 12, 2000, 600), stage("CenterCrop", 0.1, 600, 128)).message.endswith(
        "Crop the same region of the original first, then resize that."
    )
    assert cropping(stage("ColorJitter", 12, 512, 512), stage("CenterCrop", 0.1, 512, 128)).message.endswith(
        "Crop first."
    )
    assert cropping(stage("Resize", 12, 2000, 600), stage("RandomResizedCrop", 0.1, 600, 224)) is None


def oversubscribed(torch_threads, busy_cores):
    loader = LoaderFacts(is_training=True, num_workers=4, fetches=80)
    workers = tuple(
        WorkerFacts(worker_id=i, torch_threads=torch_threads, fetches=20, busy_s=4.0, cpu_s=4.0 * busy_cores)
        for i in range(4)
    )
    four = Environment(num_cpus=4)
    return said("IN011", step_ms=100, input=50, loaders=(loader,), environment=four, workers=workers).message


def test_threads_of_other_libraries_are_not_cured_by_torchs_number():
    assert "torch.set_num_threads(1)" in oversubscribed(4, 0.9)
    assert "cv2.setNumThreads(0)" in oversubscribed(1, 1.8)
    assert "torch.set_num_threads(1)" not in oversubscribed(1, 1.8)


def test_a_collection_that_is_asked_for_at_several_lines_is_not_nobodys():
    collector = CollectorFacts(collections=60, full=60, seconds=2.0, longest_s=0.1, place=PLACE, called=60)
    causes = Causes(collector=collector, num_steps=60, phases_s={"host": 1.0, "forward": 5.0})
    found = said("HO004", step_ms=100, host=20, forward=80, causes=causes)
    assert "requested 60 times, mostly by `train` (train.py:41)" in found.message
    assert found.fixes == ()


PINS = LoaderFacts(is_training=True, pin_memory=True, fetches=20)


@pytest.mark.parametrize(
    ("loaders", "cure"),
    [((), "on the device"), ((PINS,), "already pins"), ((replace(PINS, pin_memory=False),), "Set pin_memory=True")],
)
def test_pinning_is_advised_where_it_can_pin(loaders, cure):
    copies = Causes(transfers=(Transfer(direction="to_device", place=PLACE, count=20, num_bytes=1 << 30, seconds=0.2),))
    found = said("TR001", step_ms=80, transfer=12, forward=60, environment=GPU, causes=copies, loaders=loaders)
    assert cure in found.message


def test_a_constant_that_is_copied_from_pinned_memory_is_told_once():
    copy = Transfer(direction="to_device", place=PLACE, count=20, seconds=0.2, pinned=True, blocking=True, repeats=20)
    known = {"step_ms": 80, "transfer": 12, "forward": 60, "environment": GPU}
    assert said("TR002", causes=Causes(num_steps=20, transfers=(copy,)), **known) is None
    assert said("TR002", causes=Causes(num_steps=20, transfers=(replace(copy, repeats=0),)), **known) is not None


def test_saves_within_steps_that_are_means_of_several_count_whole():
    save = said("EP003", step_ms=50, n=100, forward=40, checkpoint=5)
    assert save is not None
    truth = example(step_ms=50, n=100, forward=40, checkpoint=5)
    run = replace(truth.run, steps_each=8)
    in_means = RULES["EP003"].check(run, replace(truth.breakdown, loop_s=8 * truth.breakdown.loop_s), ())
    assert in_means.share == pytest.approx(save.share)


def test_a_library_that_works_with_torch_is_not_called_something_else():
    forward = ("model.py", 20, "Net.forward")

    def lines(uses_torch):
        own = line(
            1.0, forward, ("train.py", 44, "train"), phase=Phase.FORWARD, leaf="efficientnet_pytorch",
            leaf_function="forward", leaf_uses_torch=uses_torch,
        )  # fmt: skip
        return (own, line(0.5, forward, phase=Phase.FORWARD, leaf="torch"))

    assert said("CO004", step_ms=100, forward=50, backward=40, lines=lines(uses_torch=True)) is None
    assert said("CO004", step_ms=100, forward=50, backward=40, lines=lines(uses_torch=False)) is not None


@pytest.mark.parametrize(
    ("where", "phase"),
    [("weights", Phase.FORWARD), ("gradients", Phase.BACKWARD), ("optimizer state", Phase.OPTIMIZER)],
)
def test_small_numbers_are_told_in_the_phase_that_computes_with_them(where, phase):
    price = SettingTrial(switch="denormals", tried=1.0, share=0.3, steps=30, ordered=0.97)
    causes = Causes(num_steps=60, prices=(price,), denormals=(Denormals(where=where, elements=1000, share=0.2),))
    assert said("CO008", step_ms=20, forward=8, backward=8, optimizer=4, causes=causes).phase == phase


@pytest.mark.parametrize(("busy_s", "ms"), [(0.0, 60.0), (0.36, 90.0), (0.12, 60.0)])
def test_the_device_is_as_busy_as_its_kernels_say(busy_s, ms):
    work = DeviceWork(num_steps=4, wall_s=0.4, busy_s=busy_s, num_kernels=40)
    truth = example(
        step_ms=100, forward=50, environment=GPU, causes=Causes(device_work=work), device_ns=(20_000_000, 40_000_000, 0)
    )
    assert device_ms(truth.run, truth.breakdown) == pytest.approx(ms)
