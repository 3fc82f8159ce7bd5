"""Scripts of one process on two ranks that keep shares of parameters: figures, weights and files of one process.

Modules: flatout.ranks.sharded.sharding, flatout.ranks.sharded.calls, flatout.ranks.sharded.passes and
flatout.ranks.sharded.past_python.
"""

import re
import shutil
import subprocess
import sys

import pytest
import torch

from tests.architecture.source import REPO
from tests.e2e.support import Flatout, why_no_private_world

pytestmark = pytest.mark.timeout(900)  # seven trainings, each in one process and on two ranks

SCRIPTS = REPO / "tests" / "e2e" / "sharded"
NAMES = sorted(path.stem for path in SCRIPTS.glob("*.py") if path.stem != "each")
NUMBER = re.compile(r"-?\d+\.?\d*(?:e-?\d+)?")
MEMORY = re.compile(
    r"optimizer state: ([\d.]+) MB on this rank, of ([\d.]+) MB in one process; of the parameters at most ([\d.]+)"
)


@pytest.fixture(scope="module")
def trainings(tmp_path_factory):
    """Every script in one process, and on two ranks; returns the folders of both."""
    if why_no_private_world():
        pytest.skip(why_no_private_world())
    top = tmp_path_factory.mktemp("sharded")
    one, two = top / "one", top / "two"
    plain = subprocess.run([sys.executable, SCRIPTS / "each.py", one, *NAMES], capture_output=True, text=True)
    assert plain.returncode == 0, plain.stderr
    flatout = Flatout(top)
    words = ["run", "--nproc-per-node", "2", "--shard", str(SCRIPTS / "each.py"), str(two), *NAMES]
    ended = flatout.wait(flatout.start(*words), 700)
    assert ended.code == 0, ended.err
    assert flatout.left_behind() == []
    return one, two


def figures(text):
    return [float(number) for number in NUMBER.findall(text)]


@pytest.mark.parametrize("name", NAMES)
def test_two_ranks_print_what_one_process_prints(trainings, name):
    one, two = ((folder / name / "out.txt").read_text() for folder in trainings)
    assert "Traceback" not in one + two, two
    assert NUMBER.sub("#", one) == NUMBER.sub("#", two)
    assert len(one.splitlines()) >= 50
    assert figures(two) == pytest.approx(figures(one), rel=5e-5, abs=5e-5)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "optimizers"])
def test_two_ranks_end_with_the_weights_of_one_process(trainings, name):
    one, two = (torch.load(folder / name / "weights.pt", weights_only=True) for folder in trainings)
    assert list(one) == list(two)
    for ours, theirs in zip(two.values(), one.values(), strict=True):
        assert type(ours) is torch.Tensor
        # gradients of a bias before a normalization are rounding alone, of which Adam makes whole steps
        torch.testing.assert_close(ours, theirs, rtol=5e-4, atol=1e-4 if ours.dim() > 1 else 2e-2)


def test_a_checkpoint_of_ranks_is_that_of_one_process_which_goes_on_from_it(trainings, tmp_path):
    one, two = trainings
    ours, theirs = (torch.load(folder / "transformer" / "half.pt", weights_only=True) for folder in (two, one))
    for number, state in theirs["optimizer"]["state"].items():
        for name, value in state.items():
            torch.testing.assert_close(ours["optimizer"]["state"][number][name], value, rtol=1e-3, atol=1e-5)
    shutil.copy(two / "transformer" / "half.pt", tmp_path / "checkpoint.pt")
    words = [sys.executable, SCRIPTS / "transformer.py"]
    plain = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert plain.returncode == 0, plain.stderr
    whole = (one / "transformer" / "out.txt").read_text()
    rest = whole[whole.index("\n30 ") + 1 :]
    assert figures(plain.stdout) == pytest.approx(figures(rest), rel=1e-4, abs=1e-4)


def test_a_rank_keeps_half_of_it_and_goes_on_from_a_checkpoint_of_one_process(trainings, flatout):
    shutil.copy(trainings[0] / "transformer" / "half.pt", flatout.folder / "checkpoint.pt")
    ended = flatout("run", "--nproc-per-node", "2", "--shard", str(SCRIPTS / "transformer.py"))
    assert ended.code == 0, ended.err
    whole = (trainings[0] / "transformer" / "out.txt").read_text()
    assert figures(ended.out) == pytest.approx(figures(whole[whole.index("\n30 ") + 1 :]), rel=1e-4, abs=1e-4)
    own, whole, _ = map(float, MEMORY.search(ended.err).groups())
    assert 0.5 <= own / whole < 0.53


def test_shares_of_one_machine_of_two(tmp_path):
    if why_no_private_world():
        pytest.skip(why_no_private_world())
    folders = [tmp_path / name for name in ("a", "b")]
    for folder in folders:
        folder.mkdir()
    port = 29000 + hash(str(tmp_path)) % 900
    words = ["run", "--nproc-per-node", "2", "--nnodes", "2", "--rdzv-endpoint", f"localhost:{port}", "--shard", "node"]
    machines = [Flatout(folder) for folder in folders]
    started = [machine.start(*words, str(SCRIPTS / "mlp.py")) for machine in machines]
    assert [machine.wait(each, 300).code for machine, each in zip(machines, started, strict=True)] == [0, 0]
    plain = subprocess.run([sys.executable, SCRIPTS / "mlp.py"], cwd=tmp_path, capture_output=True, text=True).stdout
    printed = [(tmp_path / f"{folder.name}-streams" / "0.out").read_text() for folder in folders]
    said = [(tmp_path / f"{folder.name}-streams" / "0.err").read_text() for folder in folders]
    (ours,) = [text for text in printed if text]
    assert figures(ours) == pytest.approx(figures(plain), rel=2e-5, abs=2e-5)
    own, whole, _ = map(float, MEMORY.search(said[0]).groups())
    assert own / whole < 0.6


START = """
import threading, torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(40, 64), torch.nn.Tanh(), torch.nn.Linear(64, 32))
optimizer = torch.optim.{optimizer}(model.parameters(), 1e-3)
def step():
    loss = model(torch.randn(8, 40)).pow(2).mean()
    optimizer.zero_grad(); loss.backward({backward}); optimizer.step()
    return loss
step()
{after}
print("went on")
"""


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ({"after": "optimizer.state[model[0].weight]['exp_avg']"}, "the script reads the state of an optimizer"),
        ({"after": "sum(1 for _ in optimizer.state.items())"}, "the script reads the state of an optimizer"),
        ({"backward": "create_graph=True"}, "leaves gradients that have a graph"),
    ],
)
def test_what_shares_cannot_do_stops_the_training_with_the_reason(flatout, script, told):
    flatout.write(START.format(**{"optimizer": "Adam", "backward": "", "after": "", **script}))
    ended = flatout("run", "--nproc-per-node", "2", "--shard", "train.py")
    assert ended.code == 1
    assert f"flatout: stopped: {told}" in ended.err or told in ended.err
    assert "went on" not in ended.out


def test_a_thread_that_reads_a_parameter_is_told_why_it_cannot(flatout):
    after = """
def read():
    try:
        print(model[0].weight.sum().item())
    except RuntimeError as error:
        print(error)
thread = threading.Thread(target=read); thread.start(); thread.join()
"""
    flatout.write(START.format(optimizer="Adam", backward="", after=after))
    ended = flatout("run", "--nproc-per-node", "2", "--shard", "train.py")
    assert ended.code == 0, ended.err
    assert "a thread or a forked process cannot read them" in ended.out


def test_an_optimizer_that_does_not_step_by_values_leaves_parameters_whole(flatout):
    script = START.format(optimizer="Adafactor", backward="", after="print(type(model[0].weight))")
    flatout.write(script)
    ended = flatout("run", "--nproc-per-node", "2", "--shard", "train.py")
    assert ended.code == 0, ended.err
    assert "parameters stayed whole on every rank: Adafactor does not step each value by itself" in ended.err
