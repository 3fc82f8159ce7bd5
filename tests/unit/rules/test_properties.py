"""Whatever a recording holds, no rule raises and every figure stays within its bounds."""

import math

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.examples import examples

from flatout.rules import examine, example
from flatout.rules.core.example import steps_of
from flatout.schema.phase import OUTSIDE_PHASES, STEP_PHASES, Phase
from flatout.schema.run import (
    Arithmetic,
    Causes,
    CompiledFunction,
    CompiledTrial,
    Convolutions,
    Denormals,
    DeviceMemory,
    DeviceWork,
    Environment,
    Exchange,
    Fallback,
    Frame,
    FrozenCalls,
    LayoutTrial,
    LineCost,
    LineOperations,
    LoaderFacts,
    LoopInvariant,
    MicroBatches,
    ModelFacts,
    NeedlessCopy,
    OptimizerFacts,
    Outside,
    Padding,
    RankSummary,
    RepeatedForward,
    RepeatedLine,
    Retained,
    SamplePrefix,
    SettingTrial,
    SlowReduction,
    Stage,
    SyncPoint,
    Transfer,
    UnusedGradients,
    UnusedRows,
    Utilization,
    WorkerFacts,
)

small = st.integers(0, 40)
seconds = st.one_of(st.just(0.0), st.floats(0, 100))
share = st.floats(0, 1)
frames = st.builds(
    Frame, st.sampled_from(["a.py", "/nowhere/b.py"]), st.integers(1, 50), st.sampled_from(["f", "N.forward", "log"])
)
place = st.none() | frames

lines = st.builds(
    LineCost,
    process=st.sampled_from(["main", "worker"]),
    phase=st.sampled_from(list(Phase)),
    part=st.sampled_from(["", "lead", "loss", "tail"]),
    stage=st.sampled_from(["", "sample", "collate", "sampler", "wait", "generator"]),
    stack=st.lists(frames, max_size=3).map(tuple),
    leaf=st.sampled_from(["", "torch", "numpy", "json"]),
    leaf_function=st.sampled_from(["", "run"]),
    seconds=seconds,
    samples=st.integers(0, 300),
)
prefixes = st.builds(
    SamplePrefix,
    checked=small,
    deterministic=st.booleans(),
    prefix_share=share,
    seconds=seconds,
    shares_memory=st.booleans(),
    sample_bytes=st.integers(0, 1 << 20),
    numbers=small,
    made_at=place,
)
loaders = st.builds(
    LoaderFacts,
    is_training=st.booleans(),
    num_workers=st.integers(0, 20),
    batch_size=st.sampled_from([0, 1, 32]),
    persistent_workers=st.booleans(),
    num_samples=st.integers(0, 10_000),
    num_batches=small,
    has_getitems=st.booleans(),
    iterable_style=st.booleans(),
    in_memory_bytes=st.sampled_from([0, 1 << 20]),
    default_collate=st.booleans(),
    default_sampler=st.booleans(),
    epochs_started=st.integers(0, 4),
    start_s=seconds,
    created_at=place,
    iterated_at=place,
    batch_bytes=st.integers(0, 1 << 24),
    sample_s=seconds,
    sample_cpu_s=seconds,
    collate_s=seconds,
    sampler_s=seconds,
    wait_s=seconds,
    fetches=small,
    prefix=st.none() | prefixes,
    stages=st.lists(
        st.builds(
            Stage,
            name=st.sampled_from(["Resize", "RandomCrop", "Mine"]),
            library=st.sampled_from(["", "torchvision"]),
            seconds=seconds,
            pixels_before=small,
            pixels_after=small,
        ),
        max_size=3,
    ).map(tuple),
)
models = st.builds(
    ModelFacts,
    dtypes=st.sampled_from([(), ("float32",), ("float64",)]),
    replicas=st.integers(1, 8),
    anomaly_share=st.floats(-0.5, 1.5),
    anomaly_steps=small,
)
optimizers = st.builds(
    OptimizerFacts,
    implementation=st.sampled_from(["", "loop", "fused"]),
    num_tensors=small,
    fused_available=st.booleans(),
)
workers = st.builds(WorkerFacts, torch_threads=st.integers(1, 8), fetches=small, busy_s=seconds, cpu_s=seconds)
outside = st.builds(
    Outside,
    phase=st.sampled_from(OUTSIDE_PHASES),
    start_ns=st.integers(0, 10**10),
    wall_ns=st.integers(0, 10**10),
    with_grad=st.booleans(),
    num_batches=small,
)
prices = st.builds(
    SettingTrial,
    switch=st.sampled_from(["threads", "denormals", "gradients"]),
    own=st.integers(1, 64),
    tried=st.integers(1, 64),
    share=st.floats(-10, 1),
    steps=small,
    ordered=share,
    place=place,
)
counts = st.integers(0, 1000)
paddings = st.builds(
    Padding,
    source=st.sampled_from(["attention_mask", "padding_idx"]),
    batches=small,
    positions=counts,
    padded=counts,
    cut_off=counts,
    place=place,
).filter(lambda found: found.cut_off <= found.padded <= found.positions)
arithmetic = st.builds(
    Arithmetic,
    flops=st.dictionaries(
        st.sampled_from(["matmul float32", "convolution float16 channels-first", "attention bfloat16"]),
        st.floats(0, 1e15),
    ),
    attention_flops=st.floats(0, 1e15),
    attention_at=place,
    float32_flops_s=st.sampled_from([0.0, 67e12]),
    tf32_possible=st.booleans(),
    matmul_precision=st.sampled_from(["", "highest", "high"]),
    unaligned_flops=st.floats(0, 1e15),
    unaligned_at=place,
    unaligned_sizes=st.sampled_from([(), (8, 768, 50257)]),
)
convolutions = st.builds(
    Convolutions,
    search=st.sampled_from(["on", "off", "deterministic"]),
    steps=small,
    new_steps=small,
    new_s=seconds,
    known_s=seconds,
)
device_works = st.builds(
    DeviceWork,
    num_steps=small,
    wall_s=st.sampled_from([0.0, 0.1]),
    busy_s=st.floats(0, 0.1),
    num_kernels=st.integers(0, 100_000),
    seconds=st.dictionaries(st.sampled_from(["kernel", "copy to the device"]), st.floats(0, 0.2)),
)
exchanges = st.builds(
    Exchange,
    steps=small,
    exchanges=st.floats(0, 8),
    needless=st.floats(0, 8),
    exposed_s=st.just({str(i): 0.01 * i for i in range(12)}) | st.just({}),
    elements=st.just({str(i): 7 * i % 5 for i in range(12)}) | st.just({}),
    exchange_s=seconds,
    step_s=seconds,
    place=place,
)
rank_facts = st.builds(
    RankSummary,
    rank=st.integers(0, 3),
    num_steps=small,
    median_ms=seconds,
    phases_ms=st.just({"forward": 20.0, "backward": 30.0}) | st.just({}),
    exchange=st.none() | exchanges,
    epoch_batches=small,
    epoch_s=seconds,
)
compiled_functions = st.builds(
    CompiledFunction,
    place=frames,
    compilations=st.integers(1, 20),
    again=st.integers(0, 19),
    seconds=seconds,
    again_s=seconds,
    limit=st.sampled_from([0, 8]),
    changed_at=place,
    refused=st.sampled_from([None, False, True]),
)
compiled_trials = st.builds(
    CompiledTrial, model=st.just("Net"), place=frames, n=st.integers(0, 7), written_s=seconds, compiled_s=seconds
)
unused_gradients = st.builds(
    UnusedGradients,
    n=st.integers(0, 3),
    parameters=counts,
    num_bytes=counts,
    all_bytes=counts,
    largest=st.just("stem.weight"),
    seconds=seconds,
    place=st.none() | place,
)
memories = st.builds(
    DeviceMemory,
    retries=small,
    total_bytes=small,
    allocated_bytes=small,
    reserved_bytes=small,
)
forward_facts = {
    "repeated_lines": st.lists(st.builds(RepeatedLine, place=frames, count=small), max_size=3).map(tuple),
    "line_operations": st.lists(
        st.builds(LineOperations, place=frames, count=small, seconds=seconds, floor_s=seconds), max_size=3
    ).map(tuple),
    "needless_copies": st.lists(
        st.builds(
            NeedlessCopy,
            kind=st.sampled_from(["clone", "repeat", "growing", "cast"]),
            place=place,
            count=small,
            num_bytes=small,
            seconds=st.floats(0, 20),
            whole_s=st.floats(0, 20),
        ),
        max_size=3,
    ).map(tuple),
    "frozen_calls": st.lists(
        st.builds(
            FrozenCalls,
            place=place,
            calls=small,
            steps=small,
            seconds=seconds,
            rows=small,
            repeated=small,
            row_bytes=small,
            output_bytes=small,
        ),
        max_size=2,
    ).map(tuple),
    "unused_rows": st.none()
    | st.builds(UnusedRows, place=place, rows=small, unused=small, width=small, n=small, all_s=seconds, used_s=seconds),
    "layout_trial": st.none() | st.builds(LayoutTrial, place=place, n=small, first_s=seconds, last_s=seconds),
}
causes = st.builds(
    Causes,
    **forward_facts,
    num_steps=small,
    prices=st.lists(prices, max_size=1).map(tuple),
    denormals=st.lists(st.builds(Denormals, where=st.just("weights"), elements=small, share=share), max_size=2).map(
        tuple
    ),
    padding=st.lists(paddings, max_size=1).map(tuple),
    exchange=st.none() | exchanges,
    arithmetic=st.none() | arithmetic,
    convolutions=st.none() | convolutions,
    device_work=st.none() | device_works,
    unused_gradients=st.none() | unused_gradients,
    compiled=st.lists(compiled_functions, max_size=2).map(tuple),
    compiled_trial=st.none() | compiled_trials,
    repeated=st.lists(
        st.builds(RepeatedForward, place=place, count=small, steps=small, seconds=st.floats(0, 20)), max_size=2
    ).map(tuple),
    unchanging=st.lists(
        st.builds(
            LoopInvariant,
            place=st.none() | place,
            operation=st.just("nonzero"),
            seconds=st.floats(0, 20),
            whole_s=st.floats(0, 20),
        ),
        max_size=3,
    ).map(tuple),
    micro_batches=st.none()
    | st.builds(
        MicroBatches,
        count=small,
        rows=small,
        joined=small,
        n=small,
        apart_s=seconds,
        together_s=seconds,
        stack=st.lists(frames, max_size=3).map(tuple),
    ),
    reductions=st.lists(
        st.builds(
            SlowReduction,
            place=st.none() | place,
            operation=st.just("var"),
            seconds=st.floats(0, 20),
            whole_s=st.floats(0, 20),
            alone_s=st.floats(0, 20),
            other_s=st.floats(0, 20),
        ),
        max_size=3,
    ).map(tuple),
    fallbacks=st.lists(
        st.builds(Fallback, place=st.none() | place, operation=st.just("aten::linalg_svd"), device=st.just("MPS")),
        max_size=3,
    ).map(tuple),
    lines=st.lists(lines, max_size=8).map(tuple),
    syncs=st.lists(
        st.builds(
            SyncPoint,
            operation=st.sampled_from(["item", "torch.cuda.synchronize"]),
            place=place,
            count=small,
            seconds=seconds,
        ),
        max_size=2,
    ).map(tuple),
    transfers=st.lists(
        st.builds(
            Transfer,
            direction=st.sampled_from(["to_device", "to_host"]),
            place=place,
            count=small,
            num_bytes=st.integers(0, 1 << 30),
            seconds=seconds,
            dtype=st.sampled_from(["float32", "uint8"]),
            pinned=st.booleans(),
            blocking=st.booleans(),
            repeats=small,
            looked=small,
            as_bytes=small,
        ),
        max_size=2,
    ).map(tuple),
    retained=st.lists(
        st.builds(Retained, name=st.just("losses"), place=place, graphs=small, of_steps=small, num_bytes=small),
        max_size=2,
    ).map(tuple),
)
reasons = st.sampled_from(["", "power cap", "hardware thermal"])
phases = st.fixed_dictionaries({phase: st.one_of(st.just(0.0), st.floats(0, 200)) for phase in STEP_PHASES})


@st.composite
def recordings(draw):
    parts = draw(st.lists(phases, min_size=0, max_size=3))
    factor = draw(st.sampled_from([1, 9, 20]))
    steps = steps_of(
        parts * factor,
        epoch=[i // 25 for i in range(len(parts) * factor)],
        first_of_epoch=[i % 25 == 0 for i in range(len(parts) * factor)],
        device_ns=draw(st.sampled_from([(), (10**6, 10**6, 10**6)])),
    )
    detail = {
        "loaders": tuple(draw(st.lists(loaders, max_size=2))),
        "models": tuple(draw(st.lists(models, max_size=1))),
        "optimizers": tuple(draw(st.lists(optimizers, max_size=1))),
        "workers": tuple(draw(st.lists(workers, max_size=3))),
        "outside": tuple(draw(st.lists(outside, max_size=3))),
        "causes": draw(st.none() | causes),
        "ranks": tuple(draw(st.lists(rank_facts, max_size=3))),
        "device_memory": draw(st.none() | memories),
        "samples_per_step": draw(st.sampled_from([None, 0.0, 16.0])),
        "environment": Environment(
            device_kind=draw(st.sampled_from(["cpu", "cuda"])), num_cpus=draw(st.integers(1, 8)), memory_bytes=1 << 30
        ),
        "utilization": tuple(
            Utilization(at_s=0.1 * i, main_cpu=1.0, foreign_cpu=draw(share), gpu_throttled=draw(reasons))
            for i in range(3)
        ),
    }
    return example(steps=steps, n=0, **detail)


@settings(
    max_examples=examples(120), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(recordings())
def test_no_rule_raises_and_every_figure_is_within_its_bounds(truth):
    found = examine(truth.run, truth.breakdown, truth.headroom)
    assert found.notes == ()
    for finding in found.findings:
        assert 0 <= finding.share <= 1
        assert 1 <= finding.max_speedup <= 1000
        assert all(math.isfinite(part.value) for part in finding.evidence)
        assert "nan" not in finding.message
        fits = abs(math.log(finding.max_speedup * (1 - min(0.999, finding.share)))) < math.log(1.11)
        assert fits or finding.bound_by or finding.max_speedup < 1.01 or not finding.share
    speedups = [finding.max_speedup for finding in found.findings if not finding.code.startswith("MS")]
    assert speedups == sorted(speedups, reverse=True)
    assert len({finding.code for finding in found.findings}) == len(found.findings)
