"""Scripts that know one process, on two ranks: the printed figures, the weights and the files of one process.

Modules: flatout.ranks.cut_calls, flatout.ranks.proof, flatout.ranks.rank and flatout.engine.process.rank_start.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.architecture.source import REPO
from tests.e2e.support import Flatout, training, why_no_private_world

SCRIPTS = REPO / "benchmarks" / "ranks"
NAMES = sorted(path.stem for path in SCRIPTS.glob("*.py") if path.stem != "each" and not path.stem.startswith("long_"))
CUT = {  # modules whose calls are cut, of which every training has some
    "branches": ["ByItsData", "ByLot", "Linear"],
    "by_hand": ["Linear", "Sequential"],
    "checkpointed": ["Deep"],
    "cnn_batchnorm": ["Sequential"],
    "codebook": ["Sequential"],
    "compiled": ["OptimizedModule", "Sequential"],
    "compiled_noise": [],
    "contrastive": ["Sequential"],
    "data_parallel": ["Sequential"],
    "dropout": ["Noisy"],
    "early_stop": ["Sequential"],
    "ema": ["Sequential"],
    "experts": ["Experts"],
    "gan": ["Sequential"],
    "kept_figures": ["Linear", "Talking"],
    "lbfgs": ["Sequential"],
    "loss_inside": ["Sequential"],
    "mlp": ["Sequential"],
    "outside_weights": ["Linear"],
    "own_streams": ["Linear", "Masked", "Noisy"],
    "side_effects": ["Linear"],
    "stages": ["Growing", "Linear"],
    "time_first": ["Sequence"],
    "token_mean": ["Tiny"],
    "transformed": ["Sequential"],
    "two_inputs": ["Both"],
    "warmups": ["ByBuffer", "ByFraction", "ByGlobal", "Linear"],
}
NUMBER = re.compile(r"-?\d+\.?\d*(?:e-?\d+)?")


@pytest.fixture(scope="module")
def trainings(tmp_path_factory):
    """Every script in one process, and on two ranks; returns the folders of both."""
    if why_no_private_world():
        pytest.skip(why_no_private_world())
    top = tmp_path_factory.mktemp("ranks")
    one, two = top / "one", top / "two"
    plain = subprocess.run([sys.executable, SCRIPTS / "each.py", one, *NAMES], capture_output=True, text=True)
    assert plain.returncode == 0, plain.stderr
    flatout = Flatout(top)
    ended = flatout("run", "--nproc-per-node", "2", str(SCRIPTS / "each.py"), str(two), *NAMES)
    assert ended.code == 0, ended.err
    assert flatout.left_behind() == []
    return one, two


def test_every_script_has_its_expectation():
    assert sorted(CUT) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_two_ranks_print_what_one_process_prints(trainings, name):
    one, two = ((folder / name / "out.txt").read_text() for folder in trainings)
    assert "Traceback" not in one + two, two
    assert NUMBER.sub("#", one) == NUMBER.sub("#", two)
    ours, theirs = ([float(number) for number in NUMBER.findall(text)] for text in (two, one))
    assert ours == pytest.approx(theirs, rel=2e-5, abs=2e-5)


@pytest.mark.parametrize("name", NAMES)
def test_two_ranks_end_with_the_weights_of_one_process(trainings, name):
    one, two = (torch.load(folder / name / "weights.pt", weights_only=True) for folder in trainings)
    assert one
    for ours, theirs in zip(two, one, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("name", NAMES)
def test_calls_of_the_model_are_cut(trainings, name):
    modules = json.loads((trainings[1] / name / "modules.json").read_text())
    cut = {each: module["cut"] for each, module in modules.items() if module["cut"]}
    assert sorted(cut) == CUT[name], modules


def on_ranks(flatout, script, *words, number=2):
    flatout.write(script)
    return flatout("run", "--nproc-per-node", str(number), "train.py", *words)


MIXING = """
import torch
torch.manual_seed(0)
class Mixing(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)
    def forward(self, x):
        return self.inner(x - x.mean(0))
model = Mixing()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(5):
    loss = model(torch.randn(6, 4)).pow(2).mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    print(f"{loss.item():.6f}")
print(open("there.txt", "w").write("x"))
"""


def plain(flatout):
    return subprocess.run([sys.executable, "train.py"], cwd=flatout.folder, capture_output=True, text=True).stdout


def test_a_model_that_mixes_rows_is_named_and_its_parts_are_cut(flatout):
    ended = on_ranks(flatout, MIXING)
    assert ended.code == 0, ended.err
    assert "Mixing: 5 calls whole on every rank: rows of its batch depend on each other" in ended.err
    assert "Linear: 5 calls by rows (3 + 3 of 6 in the first)" in ended.err
    assert ended.out == plain(flatout)


def test_an_exception_on_one_rank_ends_all_and_is_told_once(flatout):
    script = training(each_step='if done == 5 and os.environ["RANK"] == "1": raise ValueError("only here")')
    ended = on_ranks(flatout, script)
    assert ended.code == 1
    assert "rank 1 has failed" in ended.err
    assert ended.err.count("ValueError: only here") == 1


def test_an_exception_on_all_ranks_is_told_once(flatout):
    ended = on_ranks(flatout, training(each_step='if done == 5: raise ValueError("everywhere")'))
    assert ended.code == 1
    assert ended.err.count("ValueError: everywhere") == 1


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_is_killed_is_named_with_the_signal(flatout, rank):
    script = training(each_step=f'if done == 5 and os.environ["RANK"] == "{rank}": os.kill(os.getpid(), 9)')
    ended = on_ranks(flatout, script)
    assert ended.code == 137
    assert f"rank {rank} was killed by SIGKILL: the kernel does so when memory runs out" in ended.err
    assert "has failed" not in ended.err


def test_ranks_that_go_different_ways_are_stopped_with_the_line(flatout):
    script = training(each_step='if done == 7 and os.environ["RANK"] == "1": return')
    ended = on_ranks(flatout, script)
    assert ended.code == 1
    assert "stopped: ranks went different ways: the script has ended in rank 1" in ended.err


def test_ranks_with_other_data_are_stopped_with_what_they_are_at(flatout):
    script = training(before='torch.manual_seed(int(os.environ["RANK"]))')
    ended = on_ranks(flatout, script)
    assert ended.code == 1
    assert "stopped: ranks went different ways: call 1, of Linear with [8, 8], is made with other data" in ended.err


LEAKING = """
import collections
import torch
torch.manual_seed(0)
{makes}
class Leaking(torch.nn.Linear):
    def forward(self, x):
        out = super().forward(x)
        {keep}(out.pow(2).mean())
        return out
model = Leaking(4, 4)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(3):
    loss = model(torch.randn(6, 4)).mean() + {kept}
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("went on", loss.item())
"""


def test_a_tensor_that_leaves_a_call_by_a_queue_that_its_code_names_is_made_by_every_rank(flatout):
    script = LEAKING.format(makes="kept = collections.deque()", keep="kept.append", kept="kept[-1]")
    ended = on_ranks(flatout, script)
    assert ended.code == 0, ended.err
    assert ended.out == plain(flatout)
    assert ended.out.count("went on") == 3


def test_a_tensor_that_leaves_a_call_past_its_results_stops_the_training(flatout):
    ended = on_ranks(flatout, LEAKING.format(makes="", keep="torch.kept =", kept="torch.kept"))
    assert ended.code == 1
    assert "Leaking hands out something by other ways than its results" in ended.err
    assert "went on" not in ended.out


def test_a_script_that_distributes_itself_goes_through(flatout):
    script = """
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(3):
    optimizer.zero_grad(); model(torch.randn(4, 4)).mean().backward(); optimizer.step()
os.write(1, f"rank {dist.get_rank()}\\n".encode())  # whole lines, whoever else prints
dist.destroy_process_group()
"""
    ended = on_ranks(flatout, script)
    assert ended.code == 0, ended.err
    assert sorted(ended.out.splitlines()) == ["rank 0", "rank 1"]
    assert "the script distributes itself" in ended.err


def test_without_a_private_copy_nothing_is_trained(flatout):
    flatout.write(training(steps=3, after='print("done")'))
    ended = flatout("run", "--nproc-per-node", "2", "train.py", FLATOUT_WORLD="off")
    assert ended.code == 3
    assert "cannot have a private copy of the file system here (it is switched off)" in ended.err


def test_only_one_rank_prints_and_writes(flatout):
    ended = on_ranks(flatout, training(steps=3, after="""
        print("done"); open(f"file-{os.environ['RANK']}.txt", "w").write("x"); print(sorted(os.listdir(".")))
    """.strip()))  # fmt: skip
    assert ended.code == 0, ended.err
    assert ended.out.splitlines() == ["done", "['file-0.txt', 'train.py']"]
    assert not (flatout.folder / "file-1.txt").exists()


def test_ctrl_c_ends_all_ranks(flatout):
    import signal
    import time

    flatout.write(training(each_step='if done == 3: print("running", flush=True)'))
    process = flatout.start("run", "--nproc-per-node", "2", "train.py")
    until = time.monotonic() + 60
    while "running" not in Path(process.out_path).read_text() and time.monotonic() < until:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    assert flatout.wait(process, 30).code == 130
