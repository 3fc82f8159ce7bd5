"""How many ranks run where, by the command line and by SLURM."""

import pytest

from flatout.engine.placement import Placement, first_host, place
from flatout.errors import UsageError


def test_ranks_of_one_machine():
    found = place("2", (), {})
    assert (found.ranks, found.nodes, found.endpoint, found.size) == (2, 1, "", 2)
    assert found.job != place("2", (), {}).job


def test_one_rank_for_each_visible_gpu():
    assert place("gpu", (), {"CUDA_VISIBLE_DEVICES": "0,3"}).ranks == 2
    with pytest.raises(UsageError, match="shows no GPU"):
        place("gpu", (), {"CUDA_VISIBLE_DEVICES": ""})


def test_machines_and_where_they_meet_in_any_order():
    for values in (("2", "host:29400"), ("host:29400", "2")):
        assert place("4", values, {}) == Placement(4, 2, "host:29400", "flatout")
    assert place("4", ("2", "[fe80::1]:29400"), {}).endpoint == "[fe80::1]:29400"


@pytest.mark.parametrize(
    ("ranks", "machines", "words"),
    [
        ("0", (), "a number of processes, or gpu"),
        ("two", (), "a number of processes, or gpu"),
        ("2", ("2",), "needs a place where the machines meet"),
        ("2", ("host",), "neither a number of machines"),
        ("9999", ("9", "h:1"), "more than flatout starts"),
    ],
)
def test_what_makes_no_sense_is_told_in_one_line(ranks, machines, words):
    with pytest.raises(UsageError, match=words) as caught:
        place(ranks, machines, {})
    assert "\n" not in caught.value.fact


SLURM = {
    "SLURM_PROCID": "0",
    "SLURM_NNODES": "2",
    "SLURM_NTASKS": "2",
    "SLURM_JOB_NODELIST": "gpu-[07-09,12]",
    "SLURM_JOB_ID": "123456",
}


def test_a_job_step_says_where_its_machines_meet():
    assert place("8", (), SLURM) == Placement(8, 2, "gpu-07:18456", "123456")
    assert place("8", ("2", "other:1"), SLURM).endpoint == "other:1"
    assert place("8", (), SLURM | {"SLURM_NNODES": "1", "SLURM_NTASKS": "1"}).nodes == 1


def test_a_job_step_of_several_tasks_on_a_machine_is_refused():
    with pytest.raises(UsageError, match="8 tasks on 2 machines"):
        place("8", (), SLURM | {"SLURM_NTASKS": "8"})


@pytest.mark.parametrize(
    ("listed", "host"),
    [("n1", "n1"), ("n1,n2", "n1"), ("n[1-2]", "n1"), ("a-[007,9].b,c", "a-007.b"), ("x[3]y", "x3y"), ("", "")],
)
def test_the_first_host_of_a_list(listed, host):
    assert first_host(listed) == host
