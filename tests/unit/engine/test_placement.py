"""How many ranks run where, by the command line and by variables."""

import pytest

from flatout.engine.placement import Placement, place
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


KUBERNETES = {"PET_NNODES": "4", "PET_MASTER_ADDR": "job-0.job", "PET_MASTER_PORT": "29501", "PET_NODE_RANK": "1"}


@pytest.mark.parametrize(
    ("environment", "found"),
    [
        (KUBERNETES, Placement(8, 4, "job-0.job:29501", "flatout")),
        ({"PET_NNODES": "2:4", "PET_RDZV_ENDPOINT": "a:1", "PET_RDZV_ID": "x"}, Placement(8, 4, "a:1", "x")),
        ({"PET_NNODES": "2", "PET_MASTER_ADDR": "a"}, Placement(8, 2, "a:29500", "flatout")),
    ],
)
def test_variables_of_torchrun_say_where_machines_meet(environment, found):
    assert place("8", (), environment) == found
    assert place("8", ("3", "b:2"), environment) == Placement(8, 3, "b:2", found.job)


def test_variables_of_one_machine_change_nothing():
    found = place("8", (), {"PET_NNODES": "1", "PET_MASTER_ADDR": "localhost", "PET_MASTER_PORT": "1"})
    assert found.nodes == 1


def test_a_job_without_a_step_trains_on_its_first_machine_and_says_so():
    found = place("8", (), {"SLURM_JOB_ID": "5", "SLURM_NNODES": "2", "SLURM_PROCID": "0"})
    assert found.nodes == 1
    assert "on one of the 2 machines of this job; srun starts it on all" in found.note
    assert place("8", (), {"SLURM_JOB_ID": "5", "SLURM_NNODES": "1"}).note == ""
