"""`bf16-exchange`: gradients exchanged in bfloat16, on two ranks that are processes."""

import json
import subprocess
import sys

import pytest

from flatout.fixes.bf16_exchange import choices
from flatout.rules.core.example import example
from flatout.schema.run import Environment, Exchange, RankSummary

SCRIPT = """
import json, sys
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from flatout.fixes.core.apply import install_fix
from flatout.probe.core.event_log import EventLog
from flatout.probe.core.seams import Seams
from flatout.probe.model.modules import ModuleWatch
from flatout.schema.trial import Selection

torch.distributed.init_process_group(sys.argv[2])
device = "cuda" if sys.argv[2] == "nccl" else "cpu"
rank = torch.distributed.get_rank()
site = install_fix(Selection("bf16-exchange"), Seams(), ModuleWatch(EventLog(id, id)))
site.enable()
torch.manual_seed(0)
found = {}
for kind in ("float", "double"):
    net = getattr(nn.Linear(6, 3), kind)().to(device)
    model = DistributedDataParallel(net)
    x = getattr(torch.randn(8, 6), kind)().to(device) * (1 + rank)
    model(x).pow(2).mean().backward()
    mean = net.weight.grad.clone()
    net.weight.grad = None
    net(x).pow(2).mean().backward()
    torch.distributed.all_reduce(net.weight.grad)
    wanted = net.weight.grad / torch.distributed.get_world_size()
    found[kind] = ((mean - wanted).norm() / wanted.norm()).item()
with open(f"{sys.argv[1]}/{rank}.json", "w") as file:
    json.dump({"apart": found, "hits": site.hits, "left": site.stood_back}, file)
torch.distributed.destroy_process_group()
"""


def exchanged(folder, backend, ranks):
    """What each rank tells of gradients that were exchanged, in float32 and in float64."""
    (folder / "train.py").write_text(SCRIPT)
    words = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "--standalone"]
    done = subprocess.run(
        [*words, "train.py", str(folder), backend], cwd=folder, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(ranks)]


@pytest.mark.slow
def test_a_backend_that_cannot_sum_bfloat16_is_left_alone(tmp_path):
    for told in exchanged(tmp_path, "gloo", 2):
        assert told["apart"]["float"] < 1e-6 and told["apart"]["double"] < 1e-12
        assert told["hits"] == {} and "NCCL" in told["left"]


@pytest.mark.gpu
def test_gradients_are_those_of_all_ranks_to_the_bits_of_bfloat16(tmp_path):
    (told,) = exchanged(tmp_path, "nccl", 1)
    assert 1e-6 < told["apart"]["float"] < 2**-7
    assert told["apart"]["double"] < 1e-12
    assert told["hits"] == {"exchange": 1} and "not float32" in told["left"]


def test_it_is_offered_where_gradients_are_exchanged():
    seen = Exchange(steps=20, exchanges=1.0, exposed_s={}, exchange_s=0.01, step_s=0.1)
    ranks = tuple(RankSummary(rank=rank, num_steps=60, median_ms=100.0, exchange=seen) for rank in (0, 1))
    on_cuda = Environment(device_kind="cuda")
    assert choices(example(step_ms=100, backward=60, ranks=ranks, environment=on_cuda).run) == ({},)
    assert "CUDA" in choices(example(step_ms=100, backward=60, ranks=ranks).run).reason
    assert "no DistributedDataParallel" in choices(example(step_ms=100, backward=60).run).reason
