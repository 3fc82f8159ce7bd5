"""The commands of docs/howto/several-machines.md, on two hosts, on a SLURM, and with the variables of torchrun."""

import re
import sys
from pathlib import Path

import pytest

from tests.cluster.hosts import wait
from tests.cluster.test_two_hosts import START_S, ended_well, plain_script
from tests.docs.pages import blocks

pytestmark = [pytest.mark.timeout(900), pytest.mark.full]
PAGE = "howto/several-machines.md"


def commands(reason):
    """Return the commands of the page that are not run with the others, for this reason."""
    texts = [block.text for block in blocks(PAGE) if block.note("skip") == reason]
    return [line for text in texts for line in text.splitlines() if line.strip()]


def on_path(environment=()):
    """Return an environment in which `flatout` is this one, with what more there is."""
    return {"PATH": f"{Path(sys.executable).parent}:/usr/sbin:/usr/bin:/sbin:/bin", **dict(environment)}


def trained(text):
    """Return whether the script has printed the figures of its three epochs."""
    return len(re.findall(r"^\d \d+\.\d{4}$", text, re.MULTILINE)) == 3


def on_both(hosts, command, environment=()):
    for host in hosts:
        (host.project / "train.py").write_text(plain_script())
    ended = ended_well([host.start("bash", "-ec", command, **on_path(environment)) for host in hosts])
    assert trained(ended[0].out)
    assert [host.left_behind() for host in hosts] == [[], []]


def test_the_command_of_two_machines(hosts):
    (command,) = commands("needs two machines")
    on_both(hosts, command.replace("HOST", "host1"))


def test_the_command_of_a_pod_with_the_variables_of_torchrun(hosts):
    (command,) = commands("needs Kubernetes")
    variables = {"PET_NNODES": "2", "PET_MASTER_ADDR": "host2", "PET_MASTER_PORT": "29501", "PET_NODE_RANK": "0"}
    on_both(hosts, command.replace("--nproc-per-node gpu", "--nproc-per-node 1"), variables)


def test_the_commands_of_slurm(hosts, slurm):
    step, printed, submitted = commands("needs SLURM")
    (hosts[0].project / "train.py").write_text(plain_script())
    ended = wait(slurm.start("bash", "-ec", step, **on_path()), START_S)
    assert ended.code == 0, ended.err
    assert trained(ended.out)
    for command in (printed, submitted.replace("sbatch ", "sbatch --wait ")):
        ended = wait(slurm.start("bash", "-ec", command, **on_path()), START_S)
        assert ended.code == 0, ended.err
    (output,) = hosts[0].project.glob("train-*.out")
    assert trained(output.read_text())
    assert [host.left_behind() for host in hosts] == [[], []]
