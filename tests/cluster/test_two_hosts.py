"""One script on two hosts: it trains as in one process, and a failure on one of them is told on both.

Modules: flatout.ranks.launcher, flatout.ranks.hosts.watch, flatout.ranks.hosts.links and flatout.schema.ranks.
"""

import subprocess
import sys

import pytest

from tests.cluster.hosts import wait
from tests.docs.pages import blocks
from tests.e2e.support import training, wait_until

START_S = 250.0  # on a busy machine, imports of torch included
ENDED_S = 100.0  # on a busy machine; without anybody who watches it would be half an hour
pytestmark = pytest.mark.timeout(600)
LAUNCH = ("run", "--nproc-per-node", "1", "--nnodes", "2", "--rdzv-endpoint", "host1:29400", "train.py")
TOLD = 'if done % 50 == 0: print("running", flush=True)'
ENDLESS = training(each_step=TOLD)


def launch(hosts, script, words=LAUNCH, **environment):
    for host in hosts:
        (host.project / "train.py").write_text(script)
    return [host.flatout(*words, **environment) for host in hosts]


def running(hosts, script=ENDLESS):
    """Start a training that does not end, and wait for its first steps."""
    processes = launch(hosts, script)
    output = processes[0].paths[0]
    assert wait_until(lambda: "running" in output.read_text(), START_S), processes[0].paths[1].read_text()
    return processes


def ended(hosts, processes, patience_s=ENDED_S):
    """Return how both commands ended, with nothing left on either host."""
    found = [wait(process, patience_s) for process in processes]
    assert [host.left_behind() for host in hosts] == [[], []]
    return found


def plain_script():
    (found,) = [block.text for block in blocks("howto/ranks.md") if block.note("file")]
    return found


@pytest.mark.few(1)
@pytest.mark.parametrize("endpoint", ["host1:29400", "10.77.0.2:29400"])
def test_a_plain_script_trains_as_in_one_process(hosts, tmp_path, endpoint):
    (tmp_path / "train.py").write_text(plain_script())
    alone = subprocess.run([sys.executable, "train.py"], cwd=tmp_path, capture_output=True, text=True)
    first, second = ended_well(launch(hosts, plain_script(), (*LAUNCH[:-2], endpoint, "train.py")))
    assert first.out == alone.stdout
    assert second.out == ""
    assert "rank 0, which prints and writes files, is on host1" in second.err
    assert "trains on 2 ranks on 2 machines" in first.err
    assert [host.left_behind() for host in hosts] == [[], []]
    assert [(host.project / "model.pt").exists() for host in hosts] == [True, False]


@pytest.mark.full
def test_two_launchers_of_one_machine_meet_there(hosts):
    one = hosts[0]
    (one.project / "train.py").write_text(plain_script())
    first, second = ended_well([one.flatout(*LAUNCH) for _ in range(2)])
    assert len((first.out + second.out).splitlines()) == 3
    assert one.left_behind() == []


def ended_well(processes):
    found = [wait(process, START_S) for process in processes]
    assert [one.code for one in found] == [0, 0], [one.err for one in found]
    return found


def test_a_rank_that_is_killed_is_named_on_both_hosts(hosts):
    before = 'import subprocess; subprocess.Popen(["sleep", "600"])'
    processes = running(hosts, training(before=before, each_step=TOLD))
    hosts[1].rank().kill()
    first, second = ended(hosts, processes)
    assert "rank 1 on host2 was killed by SIGKILL: the kernel does so when memory runs out" in first.err
    assert "rank 1 was killed by SIGKILL: the kernel does so when memory runs out" in second.err
    assert [first.code, second.code] == [1, 137]


def test_a_checkpoint_that_is_being_written_is_brought_to_its_end(hosts):
    writes = """
if done == 50 and os.environ["RANK"] == "0":
    with open("checkpoint.txt", "w") as file:
        print("running", flush=True)
        for _ in range(100):
            file.write("x" * 1000)
            file.flush()
            time.sleep(0.1)
"""
    processes = running(hosts, training(each_step=writes))
    hosts[1].rank().kill()
    first, _ = ended(hosts, processes)
    assert "rank 1 on host2 was killed by SIGKILL" in first.err
    assert "ranks here that are busy have 60 s to finish what they write" in first.err
    assert (hosts[0].project / "checkpoint.txt").stat().st_size == 100_000


def test_a_host_that_cannot_be_reached_is_named_on_the_other(hosts):
    processes = running(hosts)
    hosts[1].cut()
    first, second = ended(hosts, processes)
    assert "host2 cannot be reached any more: the training has ended here" in first.err
    assert "host1 cannot be reached any more: the training has ended here" in second.err
    assert "Traceback" not in first.err + second.err
    assert [first.code, second.code] == [1, 1]


def test_flatout_killed_on_the_host_where_all_meet_ends_the_other(hosts):
    processes = running(hosts)
    launcher = next(one for one in hosts[0].processes() if "flatout.ranks.launcher" in " ".join(one.cmdline()))
    launcher.kill()
    first, second = ended(hosts, processes)
    assert "flatout has ended on host1 without a word (was it killed?)" in second.err
    assert "Traceback" not in second.err
    assert first.code == 137
    assert second.code == 1


def test_a_host_that_stands_still_is_waited_for(hosts):
    script = training(steps=400, each_step=TOLD)
    processes = running(hosts, script)
    hosts[1].stand_still(20)  # longer than a host may leave the network unanswered
    ended_well(processes)


def test_an_exception_of_all_ranks_is_told_by_each_host(hosts):
    script = training(each_step='if done == 5: raise ValueError("everywhere")')
    first, second = ended(hosts, launch(hosts, script), START_S)
    assert [first.code, second.code] == [1, 1]
    assert [one.err.count("ValueError: everywhere") for one in (first, second)] == [1, 1]


@pytest.mark.full
def test_an_exception_of_one_rank_is_told_where_it_happened_and_named_elsewhere(hosts):
    script = training(each_step='if done == 5 and os.environ["RANK"] == "1": raise ValueError("only here")')
    first, second = ended(hosts, launch(hosts, script), START_S)
    assert "rank 1 on host2 has failed with exit code 1: flatout says why there" in first.err
    assert "ValueError: only here" in second.err


def test_a_rank_that_cannot_begin_ends_the_other_host_while_it_waits_to_join(hosts):
    script = 'import os\nif os.environ["RANK"] == "1": raise SystemExit(7)\n' + ENDLESS
    first, second = ended(hosts, launch(hosts, script), START_S)
    assert "rank 1 on host2 has failed with exit code 7: flatout says why there" in first.err
    assert [first.code, second.code] == [1, 7]


def test_what_ends_one_host_ends_the_other(hosts):
    processes = running(hosts)
    command = next(one for one in hosts[1].processes() if one.cmdline()[1:4] == ["-m", "flatout", "run"])
    command.terminate()
    first, second = ended(hosts, processes)
    assert "flatout was ended on host2 by SIGTERM" in first.err
    assert [first.code, second.code] == [1, 143]
