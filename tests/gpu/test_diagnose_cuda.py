"""What `flatout diagnose` says of a script on a real CUDA device."""

import subprocess
import sys

import pytest

from flatout.schema.codec import read_run
from flatout.schema.phase import STEP_PHASES, Phase

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]

SCRIPT = """
import torch
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
data = TensorDataset(torch.randn(8192, 3, 64, 64), torch.randint(0, 10, (8192,)))
model = torch.nn.Sequential(torch.nn.Conv2d(3, 64, 3), torch.nn.ReLU(), torch.nn.Flatten(),
                            torch.nn.Linear(64 * 62 * 62, 10)).cuda()
optimizer = torch.optim.Adam(model.parameters())
for epoch in range(1000):
    for x, y in DataLoader(data, batch_size=128):
        x, y = x.cuda(), y.cuda()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if loss.item() != loss.item():
            break
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cuda")
    (folder / "train.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "flatout", "diagnose", "--out", "out", "--budget", "120s", "train.py"]
    subprocess.run(command, cwd=folder, check=True, timeout=200)
    return read_run(next(folder.glob("out/*/*/run.jsonl")))


def test_the_device_is_named_and_its_clock_is_beside_the_host_clock(run):
    assert run.environment.device_kind == "cuda"
    timed = [step for step in run.steps if step.device_ns]
    assert len(timed) > len(run.steps) / 2
    assert all(sum(step.device_ns) > 0 for step in timed)


def test_copies_and_waits_are_phases_of_their_own_and_the_account_closes(run):
    transfer, sync = STEP_PHASES.index(Phase.TRANSFER), STEP_PHASES.index(Phase.SYNC)
    assert sum(step.phases_ns[transfer] for step in run.steps) > 0
    assert sum(step.phases_ns[sync] for step in run.steps) > 0
    assert all(sum(step.phases_ns) == step.wall_ns for step in run.steps)


def test_places_of_copies_and_waits_are_the_scripts_lines(run):
    places = {copy.place.line for copy in run.causes.transfers if copy.place}
    assert places == {11}
    assert any(wait.operation == "item" and wait.place.line == 16 for wait in run.causes.syncs if wait.place)
    assert any(copy.dtype == "float32" and not copy.pinned and copy.blocking for copy in run.causes.transfers)


def test_the_machine_is_sampled(run):
    assert any(sample.gpu_busy > 0 for sample in run.utilization)
    assert any(sample.gpu_memory_bytes > 0 for sample in run.utilization)


def test_kernels_and_copies_are_drawn_beside_the_steps_they_belong_to(run):
    work, spans = run.causes.device_work, run.causes.timeline
    assert not work.reason and work.num_steps == sum(span.lane == "steps" for span in spans)
    assert 0 < work.busy_s <= work.wall_s
    assert work.num_kernels > 10 * work.num_steps and work.longest
    device = [span for span in spans if span.lane.startswith("device")]
    assert {"kernel", "copy to the device", "copy to the host"} <= {span.name for span in device}
    waits = [span for span in spans if span.lane == "training thread" and span.name == "sync"]
    for wait in waits:  # `.item()` returns when the device has copied the value back
        end = wait.start_ns + wait.wall_ns
        assert any(
            span.name == "copy to the host" and wait.start_ns - 1e6 <= span.start_ns <= end + 1e6 for span in device
        )
