"""`exchange-once`: gradients of several micro-batches exchanged in the last of them, on two ranks that are processes.

Modules: flatout.fixes.model.late_exchange.
"""

import json
import subprocess
import sys

import pytest
import torch
from torch import nn

from flatout.fixes.exchange_once import FIX, choices
from flatout.fixes.model.late_exchange import why_not
from flatout.rules.core.example import example
from flatout.schema.run import Exchange, RankSummary

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

torch.distributed.init_process_group("gloo")
rank = torch.distributed.get_rank()
site = install_fix(Selection("exchange-once"), Seams(), ModuleWatch(EventLog(id, id)))
if sys.argv[1] == "with":
    site.enable()
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.used = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Linear(16, 3))
        self.unused = nn.Linear(2, 2)
    def forward(self, x):
        return self.used(x)
net = Net()
model = DistributedDataParallel(net, find_unused_parameters=True)
optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
norms, calls = [], []
all_reduce = torch.distributed.all_reduce
torch.distributed.all_reduce = lambda *args, **kwargs: calls.append(1) or all_reduce(*args, **kwargs)
for step in range(6):
    optimizer.zero_grad()
    for micro in range(2 if step == 4 else 4):
        torch.manual_seed(1000 * step + 10 * micro + rank)
        loss = nn.functional.cross_entropy(model(torch.randn(8, 6)), torch.randint(0, 3, (8,)))
        loss.backward()
    norms.append(nn.utils.clip_grad_norm_(model.parameters(), 0.5).item())
    optimizer.step()
    if sys.argv[1] == "with" and step == 2:
        site.disable()
    if sys.argv[1] == "with" and step == 3:
        site.enable()
unused = net.unused.weight.grad is None
weights = torch.cat([one.detach().reshape(-1) for one in net.state_dict().values()]).tolist()
with open(f"{sys.argv[2]}/{rank}.json", "w") as file:
    json.dump({"norms": norms, "weights": weights, "hits": site.hits, "caught up": len(calls), "unused": unused}, file)
torch.distributed.destroy_process_group()
"""


def trained(folder, how):
    (folder / "train.py").write_text(SCRIPT)
    out = folder / how
    out.mkdir()
    words = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    done = subprocess.run([*words, "train.py", how, str(out)], cwd=folder, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return [json.loads((out / f"{rank}.json").read_text()) for rank in (0, 1)]


@pytest.mark.slow
def test_a_training_with_fewer_exchanges_ends_as_the_one_with_all(tmp_path):
    plain, ours = trained(tmp_path, "without"), trained(tmp_path, "with")
    for one, other in zip(ours, plain, strict=True):
        assert one["norms"] == pytest.approx(other["norms"], rel=1e-5)
        assert one["weights"] == pytest.approx(other["weights"], rel=1e-4, abs=1e-6)
        assert one["unused"] == other["unused"]
        assert other["hits"] == {}
    # of steps 1, 2 and 5 three calls each, of the short one both; it was expected to be longer
    assert [one["hits"]["exchange"] for one in ours] == [3 + 3 + 2 + 1] * 2
    assert [one["caught up"] for one in ours] == [1, 1]


def exchanging(needless):
    seen = Exchange(steps=20, exchanges=4.0, needless=needless, exposed_s={}, exchange_s=0.01, step_s=0.1)
    return tuple(RankSummary(rank=rank, num_steps=60, median_ms=100.0, exchange=seen) for rank in (0, 1))


def test_it_is_offered_where_exchanges_are_not_needed():
    assert choices(example(step_ms=100, backward=60, ranks=exchanging(3.0)).run) == ({},)
    assert "once a step" in choices(example(step_ms=100, backward=60, ranks=exchanging(0.0)).run).reason
    assert "no DistributedDataParallel" in choices(example(step_ms=100, backward=60).run).reason
    assert FIX.addresses == ("DI004",)


class Wrapped(nn.Linear):
    static_graph = False
    _comm_hooks = ()


def test_what_reads_gradients_in_between_is_left_alone():
    model = Wrapped(2, 2)
    assert why_not(model) == ""
    model.weight.register_hook(lambda grad: None)
    assert "hooks on parameters" in why_not(model)
    model = Wrapped(2, 2)
    model.weight.register_post_accumulate_grad_hook(lambda parameter: None)
    assert "hooks on parameters" in why_not(model)
    model = Wrapped(2, 2)
    model._comm_hooks = ((torch.nn, "x"),)
    assert "own exchanges" in why_not(model)
    model._comm_hooks, model.static_graph = (), True
    assert "static graph" in why_not(model)
