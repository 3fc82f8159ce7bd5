"""Fixes that set one thing of the process: set where it is not set, left to the script, put back."""

import gc
import os
import subprocess
import sys

import pytest
import torch
from tests.unit.fixes.inputs import Rows
from tests.unit.fixes.training import train, under
from torch.utils.data import DataLoader

from flatout.fixes import (
    allocator,
    anomaly_off,
    cpu_threads,
    cudnn_search,
    cudnn_search_off,
    denormals,
    tf32,
    worker_threads,
)
from flatout.fixes.worker_threads import OneThreadWorkers, use_one_thread
from flatout.schema.run import Causes, Convolutions, Environment, Header, LoaderFacts, ModelFacts, Run, WorkerFacts


@pytest.fixture
def cuda(monkeypatch):
    """A process that believes it has a CUDA device."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)


def run(**facts):
    return Run(header=Header(script="a"), **facts)


def on(kind="cpu", **more):
    return {"environment": Environment(device_kind=kind, **more)}


# -- TF32 and the search of cuDNN --------------------------------------------------------------------------------------


def test_the_precision_of_matrix_products_is_set_and_put_back(cuda):
    with under("tf32") as process:
        assert torch.get_float32_matmul_precision() == "high"
        process.site.disable()
        assert torch.get_float32_matmul_precision() == "highest"
        process.site.enable()
        assert torch.get_float32_matmul_precision() == "high"
    assert torch.get_float32_matmul_precision() == "highest"


@pytest.mark.parametrize("own", ["high", "medium"])
def test_a_precision_that_the_script_has_set_stays(cuda, own):
    torch.set_float32_matmul_precision(own)
    try:
        with under("tf32") as process:
            assert process.site.hits == {}
        assert torch.get_float32_matmul_precision() == own
    finally:
        torch.set_float32_matmul_precision("highest")


def test_a_precision_that_the_script_sets_meanwhile_is_not_put_back(cuda):
    with under("tf32"):
        torch.set_float32_matmul_precision("medium")
    assert torch.get_float32_matmul_precision() == "medium"
    torch.set_float32_matmul_precision("highest")


def test_the_search_of_cudnn_is_set_unless_the_script_wants_determinism(cuda, monkeypatch):
    with under("cudnn-search") as process:
        assert torch.backends.cudnn.benchmark
        assert process.site.hits == {"cudnn.benchmark": 1}
    assert not torch.backends.cudnn.benchmark
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    with under("cudnn-search") as process:
        assert process.site.hits == {}


def test_the_search_of_cudnn_is_taken_off_before_a_forward_pass_and_put_back(cuda, monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    with under("cudnn-search-off") as process:
        assert torch.backends.cudnn.benchmark
        train(steps=2)
        assert not torch.backends.cudnn.benchmark
        assert process.site.hits == {"cudnn.benchmark": 1}
        torch.backends.cudnn.benchmark = True  # a script that asks again
        train(steps=1)
        assert process.site.hits == {"cudnn.benchmark": 2}
    assert torch.backends.cudnn.benchmark


def test_the_search_is_taken_off_where_shapes_keep_changing():
    def seen(**facts):
        return run(**on("cuda"), causes=Causes(convolutions=Convolutions(**facts)))

    assert cudnn_search_off.choices(seen(search="on", steps=40, new_steps=20)) == ({},)
    assert cudnn_search_off.choices(seen(search="on", steps=40, new_steps=3)).reason.startswith("convolutions have the")
    assert cudnn_search_off.choices(seen(search="off", steps=40, new_steps=20)).reason.startswith(
        "cuDNN searches for no"
    )
    assert cudnn_search_off.choices(run(**on("cuda"))) == ()
    assert cudnn_search_off.choices(run()) == ()


def test_what_needs_cuda_is_offered_there_and_to_models_that_can_use_it():
    plain, images = ModelFacts(dtypes=("float32",)), ModelFacts(dtypes=("bfloat16",), module_types={"Conv2d": 1})
    assert tf32.choices(run(**on("cuda"), models=(plain,))) == ({},)
    assert tf32.choices(run(**on("cuda"), models=(images,))) == ()
    assert cudnn_search.choices(run(**on("cuda"), models=(images,))) == ({},)
    assert cudnn_search.choices(run(**on("cuda"), models=(plain,))) == ()
    assert allocator.choices(run(**on("cuda"))) == ({},)
    assert allocator.choices(run(**on("cuda", variables={"PYTORCH_CUDA_ALLOC_CONF": "x"}))) == ()
    for fix in (tf32, cudnn_search, allocator):
        assert fix.choices(run(models=(plain, images))) == ()


def test_the_allocator_counts_only_in_a_process_that_was_started_with_the_setting(cuda, monkeypatch):
    with under("allocator") as process:
        assert process.site.hits == {}
    monkeypatch.setenv(*next(iter(allocator.FIX.environment.items())))
    with under("allocator") as process:
        assert process.site.hits == {"PYTORCH_ALLOC_CONF": 1}


# -- threads ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def threads():
    """The number of threads, put back afterwards."""
    before = torch.get_num_threads()
    yield before
    torch.set_num_threads(before)


def test_threads_change_at_the_switch_and_what_the_script_asks_meanwhile_is_kept_for_later(threads):
    with under("cpu-threads", threads=threads + 1) as process:
        assert torch.get_num_threads() == threads + 1
        process.site.disable()
        assert torch.get_num_threads() == threads
        process.site.enable()
        torch.set_num_threads(threads + 2)
        assert torch.get_num_threads() == threads + 1
    assert torch.get_num_threads() == threads + 2


class Threads(Rows):
    def __getitem__(self, index):
        return torch.get_num_threads()


def test_loader_workers_keep_their_one_thread(threads):
    with under("cpu-threads", threads=threads + 1):
        assert {int(count) for count in DataLoader(Threads(), 4, num_workers=1) for count in count} == {1}


def test_every_count_but_the_one_in_use_is_offered_on_the_cpu():
    offered = cpu_threads.choices(run(**on(num_cpus=8, torch_threads=8)))
    assert offered == ({"threads": 4}, {"threads": 1})
    assert cpu_threads.choices(run(**on(num_cpus=8, torch_threads=1))) == ({"threads": 8}, {"threads": 4})
    assert cpu_threads.choices(run(**on("cuda", num_cpus=8))) == ()


class Busy(Rows):
    """Says how many threads a worker has; it was told to use several."""

    def __getitem__(self, index):
        return torch.get_num_threads(), int(os.environ.get("OMP_NUM_THREADS", 0))


def _several(worker_id):
    torch.set_num_threads(3)


def test_workers_begin_with_one_thread_after_the_scripts_own_beginning():
    made = DataLoader(Busy(), 4, num_workers=1, worker_init_fn=_several)
    assert {int(torch_threads) for batch in made for torch_threads in batch[0]} == {3}
    with under("worker-threads") as process:
        counts = {(int(a), int(b)) for batch in made for a, b in zip(*batch, strict=True)}
        assert counts == {(1, 1)}
        assert process.site.hits == {"worker_init_fn": 1}
    assert made.worker_init_fn is _several


def test_native_libraries_of_a_process_are_told(threads):
    numpy = pytest.importorskip("numpy")
    use_one_thread()
    assert torch.get_num_threads() == 1
    assert numpy.ones(2).sum() == 2
    OneThreadWorkers(None)(0)


def test_one_thread_for_workers_is_offered_where_their_threads_exceed_the_cores():
    loader = LoaderFacts(is_training=True, num_workers=2)
    several = tuple(WorkerFacts(worker_id=i, torch_threads=4, fetches=9, busy_s=1, cpu_s=1) for i in range(2))
    single = tuple(WorkerFacts(worker_id=i, torch_threads=1, fetches=9, busy_s=1, cpu_s=1) for i in range(2))
    facts = on(num_cpus=4) | {"loaders": (loader,)}
    assert worker_threads.choices(run(**facts, workers=several)) == ({},)
    assert worker_threads.choices(run(**facts, workers=single)) == ()
    assert worker_threads.choices(run(**facts | on(num_cpus=16), workers=several)) == ()


# -- denormals --------------------------------------------------------------------------------------------------------


def half_of_the_smallest():
    return float(torch.tensor(2.0**-126) * 0.5)


def test_small_numbers_count_as_zero_until_it_is_switched_off():
    assert half_of_the_smallest() > 0
    with under("denormals"):
        assert half_of_the_smallest() == 0
    assert half_of_the_smallest() > 0


def test_a_process_that_flushes_already_is_left_alone():
    torch.set_flush_denormal(True)
    try:
        with under("denormals") as process:
            assert process.site.hits == {}
        assert half_of_the_smallest() == 0
    finally:
        torch.set_flush_denormal(False)
    assert denormals.choices(run()) == ({},)
    assert denormals.choices(run(**on("cuda"))) == ()


# -- garbage ----------------------------------------------------------------------------------------------------------


SET_ASIDE = 10_000 if sys.version_info >= (3, 12) else 0  # from 3.12 on a few objects are frozen from the start


def frozen():
    return gc.get_freeze_count() > SET_ASIDE


@pytest.mark.slow
def test_garbage_is_collected_every_so_many_steps_and_at_no_other_moment(in_sight):
    collected = []

    def note(phase, info):
        if phase == "start":
            collected.append(gc.isenabled())

    with under("gc-control", every=5):
        train(steps=2)
        assert not gc.isenabled()
        assert frozen()
        gc.callbacks.append(note)
        train(steps=20)
        gc.callbacks.remove(note)
    assert gc.isenabled()
    assert not frozen()
    assert 3 <= len(collected) <= 6
    assert not any(collected)


class Collects(Rows):
    def __getitem__(self, index):
        return gc.isenabled()


@pytest.mark.slow
def test_loader_workers_collect_as_ever(in_sight):
    with under("gc-control"):
        train(steps=2)
        assert not gc.isenabled()
        assert all(bool(one) for batch in DataLoader(Collects(), 4, num_workers=1) for one in batch)


RARELY = """
import gc, os, sys
import torch
import flatout

collected = []
gc.callbacks.append(lambda phase, info: phase == "start" and collected.append(gc.isenabled()))
{before}
flatout.collect_rarely(every=5)
flatout.collect_rarely(every=5)
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for number in range(22):
    if number == 1:
        collected.clear()
        print("collects by itself:", gc.isenabled(), "frozen:", gc.get_freeze_count() > {set_aside})
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
print("collected:", collected)
child = os.fork()
if not child:
    os._exit(gc.isenabled())
print("a child collects:", bool(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])))
"""


@pytest.mark.parametrize(
    ("before", "said"),
    [
        ("", ["collects by itself: False frozen: True", "collected: [False, False, False, False]"]),
        ("gc.disable()", ["collects by itself: False frozen: False", "collected: []"]),
    ],
)
@pytest.mark.few(1)
@pytest.mark.slow
def test_a_line_in_the_script_makes_the_collector_run_rarely(before, said):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", RARELY.format(before=before, set_aside=SET_ASIDE)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == [*said, f"a child collects: {not before}"]


def test_a_script_that_has_frozen_objects_is_left_alone(in_sight):
    gc.freeze()
    with under("gc-control") as process:
        train(steps=2)
        assert gc.isenabled()
        assert process.site.hits == {}
    assert gc.get_freeze_count() > 0


# -- anomaly detection ----------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:Anomaly Detection:UserWarning")
def test_both_ways_to_look_for_nan_are_without_effect():
    with under("anomaly-off") as process:
        with torch.autograd.detect_anomaly(), torch.autograd.set_detect_anomaly(True):
            assert not torch.is_anomaly_enabled()
        assert process.site.hits == {"set_anomaly_enabled": 2}
    with torch.autograd.set_detect_anomaly(True):
        assert torch.is_anomaly_enabled()


def test_it_is_offered_where_detection_was_measured_and_only_on_request():
    assert anomaly_off.FIX.on_request
    assert anomaly_off.choices(run(models=(ModelFacts(anomaly_steps=5),))) == ({},)
    assert anomaly_off.choices(run(models=(ModelFacts(),))) == ()
