"""How many ranks run where, of the words on the command line and of what a job scheduler says."""

import os
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from flatout.engine.slurm import STEP, in_step, machines_of_step
from flatout.errors import UsageError

__all__ = ["Placement", "RanksAsked", "number_of_machines", "number_of_ranks", "place", "place_here"]

_MOST_RANKS = 4096
_PORT = 29500  # torchrun's own, where no other is named
_ADVICE = "Try: flatout run --nproc-per-node 2 train.py"


@dataclass(frozen=True, slots=True)
class RanksAsked:
    """What the options of the command line ask for, as they were written; None where one was not given."""

    ranks: str | None = None  # --nproc-per-node
    nodes: str | None = None  # --nnodes
    endpoint: str | None = None  # --rdzv-endpoint
    shard: str | None = None  # --shard: "all", or "node"


@dataclass(frozen=True, slots=True)
class Placement:
    """The ranks of this machine, how many machines there are, and where they meet."""

    ranks: int
    nodes: int = 1
    endpoint: str = ""
    job: str = ""
    note: str = ""  # to be told before it begins
    shard: str = ""  # each rank keeps a share of the parameters, within "all" ranks or those of its "node"

    @property
    def size(self) -> int:
        """The number of all ranks."""
        return self.ranks * self.nodes


def place(asked: RanksAsked, environment: Mapping[str, str] = os.environ) -> Placement:
    """Return where the ranks run that are asked for, by the command line and else by variables.

    Raises:
        UsageError: what is asked for makes no sense, here or together.
    """
    number = number_of_ranks(asked.ranks or "", environment)
    nodes, endpoint, job, note = _machines(asked, environment)
    if nodes > 1 and not endpoint:
        raise UsageError(
            f"--nnodes {nodes} needs a place where the machines meet.",
            advice="Name one of them and a free port of it, the same on all: --rdzv-endpoint HOST:29400",
        )
    if number * nodes > _MOST_RANKS:
        raise UsageError(f"{number * nodes} ranks are more than flatout starts ({_MOST_RANKS}).", advice=_ADVICE)
    job = job or environment.get("PET_RDZV_ID") or "flatout"
    return Placement(number, nodes, endpoint, job if nodes > 1 else uuid.uuid4().hex, note, asked.shard or "")


def place_here(ranks: str, fact: str, environment: Mapping[str, str] = os.environ) -> Placement:
    """Return `ranks` of this machine, for what knows one machine only, as `fact` says.

    Raises:
        UsageError: they make no sense, or this was started on several machines.
    """
    found = place(RanksAsked(ranks), environment)
    if found.nodes == 1:
        return found
    alone = "srun --nodes 1 --ntasks 1" if in_step(environment) else "without the variable PET_NNODES"
    raise UsageError(
        f"{fact}, and this was started on {found.nodes} machines.",
        "On each of them it would do another thing at another time.",
        f"Start it on one machine, {alone}. To train on all: flatout run --nproc-per-node {ranks} train.py",
    )


def _machines(asked: RanksAsked, environment: Mapping[str, str]) -> tuple[int, str, str, str]:
    """Return how many machines there are, where they meet, the name of the job, and what there is to tell of it."""
    endpoint = "" if asked.endpoint is None else _meeting_place(asked.endpoint)
    if asked.nodes is not None:
        return number_of_machines(asked.nodes), endpoint, "", ""
    if endpoint:
        raise UsageError(
            "--rdzv-endpoint says where machines meet, and --nnodes, how many there are, is not given.",
            "Each of them would train on its own.",
            f"Say how many: --nnodes 2 --rdzv-endpoint {endpoint}",
        )
    if in_step(environment):
        return (*machines_of_step(environment), "")
    if "SLURM_JOB_ID" in environment:
        return 1, "", "", _left_alone(environment)
    return (*_of_torchrun(environment), "", "")


def _left_alone(environment: Mapping[str, str]) -> str:
    """Return what there is to say where a job has more machines than the one on which its batch file runs."""
    nodes = environment.get("SLURM_NNODES") or environment.get("SLURM_JOB_NUM_NODES") or "1"
    return f"on one of the {nodes} machines of this job; srun starts it on all: {STEP}" if nodes != "1" else ""


def number_of_ranks(text: str, environment: Mapping[str, str] = os.environ) -> int:
    """Return the number of ranks on a machine that `--nproc-per-node` asks for.

    Raises:
        UsageError: it is no number, or there is no GPU.
    """
    if text.strip().lower() == "gpu":
        number = _num_gpus(environment)
        if not number:
            raise UsageError("--nproc-per-node gpu: this machine shows no GPU.", advice=_ADVICE)
        return number
    if not re.fullmatch(r"[1-9]\d{0,3}", text.strip()):
        raise UsageError(f"--nproc-per-node {text}: write a number of processes, or gpu.", advice=_ADVICE)
    return int(text)


def number_of_machines(text: str, name: str = "--nnodes") -> int:
    """Return the number of machines that `--nnodes`, or the variable `name`, says.

    Raises:
        UsageError: it is no number.
    """
    if not re.fullmatch(r"[1-9]\d{0,3}", text.strip()):
        raise UsageError(f"{name} {text}: write a number of machines.", advice=f"Try: {name} 2")
    return int(text)


def _meeting_place(text: str, name: str = "--rdzv-endpoint") -> str:
    if not re.fullmatch(r"[^\s:/]+:\d{1,5}|\[[0-9a-fA-F:.]+\]:\d{1,5}", text.strip()):
        raise UsageError(
            f"{name} {text}: write one of the machines and a free port of it.", advice=f"Try: {name} HOST:29400"
        )
    return text.strip()


def _of_torchrun(environment: Mapping[str, str]) -> tuple[int, str]:
    """Return the machines that the variables of torchrun name, as operators of Kubernetes set them."""
    nodes = environment.get("PET_NNODES", "").rpartition(":")[2].strip()  # of MIN:MAX, the most
    endpoint = environment.get("PET_RDZV_ENDPOINT", "").strip()
    if not endpoint and environment.get("PET_MASTER_ADDR"):
        endpoint = f"{environment['PET_MASTER_ADDR']}:{environment.get('PET_MASTER_PORT') or _PORT}"
    nodes_there = number_of_machines(nodes, "PET_NNODES") if nodes else 1
    return nodes_there, _meeting_place(endpoint, "PET_RDZV_ENDPOINT") if endpoint else ""


def _num_gpus(environment: Mapping[str, str]) -> int:
    listed = environment.get("CUDA_VISIBLE_DEVICES")
    if listed is not None:
        return len([one for one in listed.split(",") if one.strip() not in ("", "-1")])
    import pynvml

    try:
        pynvml.nvmlInit()
        return int(pynvml.nvmlDeviceGetCount())
    except pynvml.NVMLError:
        return 0
