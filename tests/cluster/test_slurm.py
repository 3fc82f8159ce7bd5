"""One script on the two nodes of a SLURM: as a step, cancelled, and by a printed batch file.

Modules: flatout.engine.slurm and flatout.report.batch_file.
"""

import re
import subprocess
import sys

import pytest

from tests.cluster.hosts import wait
from tests.cluster.test_two_hosts import ENDED_S, ENDLESS, START_S, plain_script
from tests.e2e.support import wait_until

pytestmark = pytest.mark.timeout(900)
STEP = ("srun", "--nodes=2", "--ntasks-per-node=1", sys.executable, "-m", "flatout", "run", "--nproc-per-node", "1")


def alone(folder):
    """Return what one process prints."""
    folder.mkdir()
    (folder / "train.py").write_text(plain_script())
    return subprocess.run([sys.executable, "train.py"], cwd=folder, capture_output=True, text=True).stdout


def left_behind(hosts):
    return [host.left_behind() for host in hosts]


def test_a_step_of_two_nodes_trains_as_in_one_process(hosts, slurm, tmp_path):
    (hosts[0].project / "train.py").write_text(plain_script())
    ended = wait(slurm.start(*STEP, "train.py"), START_S)
    assert ended.code == 0, ended.err
    assert ended.out == alone(tmp_path / "alone")
    assert "trains on 2 ranks on 2 machines" in ended.err
    assert left_behind(hosts) == [[], []]


def test_a_job_that_is_cancelled_ends_on_both_nodes(hosts, slurm):
    (hosts[0].project / "train.py").write_text(ENDLESS)
    process = slurm.start(*STEP, "train.py")
    assert wait_until(lambda: "running" in process.paths[0].read_text(), START_S), process.paths[1].read_text()
    slurm("scancel", "--user", "root")
    ended = wait(process, ENDED_S)
    assert ended.code != 0
    assert left_behind(hosts) == [[], []]
    assert wait_until(lambda: "2 idle" in slurm("sinfo", "--noheader", "--format=%D %t"), 30)


@pytest.mark.full
def test_a_rank_that_is_killed_ends_the_step_with_its_name(hosts, slurm):
    (hosts[0].project / "train.py").write_text(ENDLESS)
    process = slurm.start(*STEP, "train.py")
    assert wait_until(lambda: "running" in process.paths[0].read_text(), START_S), process.paths[1].read_text()
    hosts[1].rank().kill()
    ended = wait(process, ENDED_S)
    assert "rank 1 on host2 was killed by SIGKILL" in ended.err
    assert left_behind(hosts) == [[], []]


def test_a_printed_batch_file_trains_on_both_nodes(hosts, slurm, tmp_path):
    (hosts[0].project / "train.py").write_text(plain_script())
    words = ("-m", "flatout", "run", "--nproc-per-node", "1", "--nnodes", "2", "--print-sbatch", "train.py")
    printed = wait(slurm.start(sys.executable, *words), START_S)
    assert printed.code == 0, printed.err
    assert "#SBATCH --time=2:00:00\n" in printed.out  # as the partition has it
    (hosts[0].project / "train.sbatch").write_text(printed.out)
    done = wait(slurm.start("sbatch", "--wait", "train.sbatch"), START_S)
    (output,) = hosts[0].project.glob("train-*.out")
    text = output.read_text()
    assert done.code == 0, done.err + text
    told = "".join(line for line in text.splitlines(keepends=True) if re.match(r"\d ", line))
    assert told == alone(tmp_path / "alone")
    assert "trains on 2 ranks on 2 machines" in text
    assert left_behind(hosts) == [[], []]
