"""How many ranks run where, by the command line and by variables."""

import pytest

from flatout.engine.placement import Placement, RanksAsked, place, place_here
from flatout.errors import UsageError


def test_ranks_of_one_machine():
    found = place(RanksAsked("2"), {})
    assert (found.ranks, found.nodes, found.endpoint, found.size) == (2, 1, "", 2)
    assert found.job != place(RanksAsked("2"), {}).job


def test_one_rank_for_each_visible_gpu():
    assert place(RanksAsked("gpu"), {"CUDA_VISIBLE_DEVICES": "0,3"}).ranks == 2
    with pytest.raises(UsageError, match="shows no GPU"):
        place(RanksAsked("gpu"), {"CUDA_VISIBLE_DEVICES": ""})


def test_machines_and_where_they_meet():
    assert place(RanksAsked("4", "2", "host:29400"), {}) == Placement(4, 2, "host:29400", "flatout")
    assert place(RanksAsked("4", "1", "host:29400", "node"), {}).shard == "node"
    assert place(RanksAsked("4", "2", "[fe80::1]:29400"), {}).endpoint == "[fe80::1]:29400"


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (("0",), "a number of processes, or gpu"),
        (("two",), "a number of processes, or gpu"),
        (("",), "a number of processes, or gpu"),
        (("2", "2"), "needs a place where the machines meet"),
        (("2", "host"), "--nnodes host: write a number of machines"),
        (("2", ""), "write a number of machines"),
        (("2", "2", "host"), "--rdzv-endpoint host: write one of the machines and a free port"),
        (("2", "2", ""), "write one of the machines and a free port"),
        (("2", None, "host:1"), "--nnodes, how many there are, is not given"),
        (("9999", "9", "h:1"), "more than flatout starts"),
    ],
)
def test_what_makes_no_sense_is_told_in_one_line(asked, words):
    with pytest.raises(UsageError, match=words) as caught:
        place(RanksAsked(*asked), {})
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
    assert place(RanksAsked("8"), environment) == found
    assert place(RanksAsked("8", "3", "b:2"), environment) == Placement(8, 3, "b:2", found.job)


@pytest.mark.parametrize("name", ["PET_NNODES", "PET_RDZV_ENDPOINT"])
def test_a_variable_that_makes_no_sense_is_named(name):
    with pytest.raises(UsageError, match=name):
        place(RanksAsked("8"), {name: "x"})


def test_what_knows_one_machine_is_refused_on_several():
    assert place_here("2", "why", {}).size == 2
    with pytest.raises(UsageError, match="why, and this was started on 4 machines") as caught:
        place_here("8", "why", KUBERNETES)
    assert "without the variable PET_NNODES" in caught.value.advice


def test_variables_of_one_machine_change_nothing():
    found = place(RanksAsked("8"), {"PET_NNODES": "1", "PET_MASTER_ADDR": "localhost", "PET_MASTER_PORT": "1"})
    assert found.nodes == 1


def test_a_job_without_a_step_trains_on_its_first_machine_and_says_so():
    found = place(RanksAsked("8"), {"SLURM_JOB_ID": "5", "SLURM_NNODES": "2", "SLURM_PROCID": "0"})
    assert found.nodes == 1
    assert "on one of the 2 machines of this job; srun starts it on all" in found.note
    assert place(RanksAsked("8"), {"SLURM_JOB_ID": "5", "SLURM_NNODES": "1"}).note == ""
