"""What SLURM says to a step of its jobs, and of its machines."""

import pytest

from flatout.engine import slurm
from flatout.engine.placement import Placement, RanksAsked, place
from flatout.engine.slurm import Partition, default_partition, first_host
from flatout.errors import UsageError

STEP = {
    "SLURM_PROCID": "0",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_STEP_NODELIST": "gpu-[07-09,12]",
    "SLURM_JOB_ID": "123456",
}


@pytest.fixture(autouse=True)
def told(monkeypatch):
    """What SLURM's programs print, by their name; every name can be resolved but those that end with `-slurm`."""
    found = {}

    def getaddrinfo(host, port):
        if host.endswith("-slurm"):
            raise OSError("no such host")

    monkeypatch.setattr(slurm, "_told", lambda command: found.get(command[0], ""))
    monkeypatch.setattr(slurm.socket, "getaddrinfo", getaddrinfo)
    return found


def test_a_job_step_says_where_its_machines_meet():
    assert place(RanksAsked("8"), STEP) == Placement(8, 2, "gpu-07:18456", "123456.0")
    assert place(RanksAsked("8", "2", "other:1"), STEP).endpoint == "other:1"
    assert place(RanksAsked("8"), STEP | {"SLURM_STEP_NUM_NODES": "1", "SLURM_STEP_NUM_TASKS": "1"}).nodes == 1


def test_steps_of_one_job_meet_at_ports_of_their_own():
    found = {place(RanksAsked("8"), STEP | {"SLURM_STEP_ID": str(step)}).endpoint for step in range(50)}
    assert len(found) == 50


def test_a_name_that_is_slurms_own_is_replaced_by_the_address(told):
    names = STEP | {"SLURM_STEP_NODELIST": "n1-slurm,n2-slurm"}
    assert place(RanksAsked("8"), names).endpoint == "n1-slurm:18456"
    told["scontrol"] = "NodeName=n1-slurm Arch=x86_64 NodeAddr=10.0.0.7 NodeHostName=x"
    assert place(RanksAsked("8"), names).endpoint == "10.0.0.7:18456"


def test_a_job_step_of_several_tasks_on_a_machine_is_refused():
    with pytest.raises(UsageError, match="8 tasks on 2 machines"):
        place(RanksAsked("8"), STEP | {"SLURM_STEP_NUM_TASKS": "8"})


@pytest.mark.parametrize(
    ("listed", "host"),
    [("n1", "n1"), ("n1,n2", "n1"), ("n[1-2]", "n1"), ("a-[007,9].b,c", "a-007.b"), ("x[3]y", "x3y"), ("", "")],
)
def test_the_first_host_of_a_list(listed, host):
    assert first_host(listed) == host


@pytest.mark.parametrize(
    ("printed", "found"),
    [
        ("small|2|(null)|1:00\nbig*|64+|gpu:a100:8(S:0-1)|infinite\n", Partition("big", 64, 8, "")),
        ("all*|2|(null)|2:00:00", Partition("all", 2, 0, "2:00:00")),
        ("all*|4|gpu:2,craynetwork:4|1-00:00:00", Partition("all", 4, 2, "1-00:00:00")),
        ("all*|4|gpu:a:1,gpu:b:3|1:00", Partition("all", 4, 4, "1:00")),
        ("all|4|gpu:2|1:00", None),
        ("", None),
    ],
)
def test_the_partition_of_jobs_that_name_none(told, printed, found):
    told["sinfo"] = printed
    assert default_partition() == found


def test_without_slurm_nothing_is_known(monkeypatch, told):
    monkeypatch.undo()
    monkeypatch.setenv("PATH", "/nowhere")
    assert default_partition() is None
