"""How many ranks run where, of the words on the command line and of what a job scheduler says."""

import os
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from flatout.engine.slurm import STEP, in_step, machines_of_step
from flatout.errors import UsageError

__all__ = ["Placement", "number_of_machines", "number_of_ranks", "place"]

_MOST_RANKS = 4096
_SHARDS = ("all", "node")
_PORT = 29500  # torchrun's own, where no other is named
_ADVICE = "Try: flatout run --nproc-per-node 2 train.py"


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


def place(ranks: str, machines: Sequence[str], environment: Mapping[str, str] = os.environ) -> Placement:
    """Return what `--nproc-per-node ranks` and the values of `--nnodes`, `--rdzv-endpoint` and `--shard` ask for.

    Raises:
        UsageError: they make no sense, here or together.
    """
    shard = next((one for one in reversed(machines) if one in _SHARDS), "")
    machines = [one for one in machines if one not in _SHARDS]
    number = number_of_ranks(ranks, environment)
    nodes, endpoint = number_of_machines(machines)
    job = note = ""
    if not machines and in_step(environment):
        nodes, endpoint, job = machines_of_step(environment)
    elif not machines and "SLURM_JOB_ID" in environment:
        note = _left_alone(environment)
    elif not machines:
        nodes, endpoint = _of_torchrun(environment)
    if nodes > 1 and not endpoint:
        raise UsageError(
            f"--nnodes {nodes} needs a place where the machines meet.",
            advice="Name one of them and a free port of it, the same on all: --rdzv-endpoint HOST:29400",
        )
    if number * nodes > _MOST_RANKS:
        raise UsageError(f"{number * nodes} ranks are more than flatout starts ({_MOST_RANKS}).", advice=_ADVICE)
    job = job or environment.get("PET_RDZV_ID") or "flatout"
    return Placement(number, nodes, endpoint, job if nodes > 1 else uuid.uuid4().hex, note, shard)


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


def number_of_machines(values: Sequence[str]) -> tuple[int, str]:
    """Return the number of machines and where they meet, of values that tell themselves apart.

    Raises:
        UsageError: a value is neither.
    """
    nodes, endpoint = 1, ""
    for value in values:
        if value in _SHARDS:
            continue
        if re.fullmatch(r"[1-9]\d{0,3}", value.strip()):
            nodes = int(value)
        elif re.fullmatch(r"[^\s:/]+:\d{1,5}|\[[0-9a-fA-F:.]+\]:\d{1,5}", value.strip()):
            endpoint = value.strip()
        else:
            raise UsageError(
                f"{value} is neither a number of machines (--nnodes 2) nor a place where they meet"
                " (--rdzv-endpoint HOST:29400), nor do ranks share parameters within it (--shard, --shard node).",
            )
    return nodes, endpoint


def _of_torchrun(environment: Mapping[str, str]) -> tuple[int, str]:
    """Return the machines that the variables of torchrun name, as operators of Kubernetes set them."""
    nodes = environment.get("PET_NNODES", "").rpartition(":")[2].strip()  # of MIN:MAX, the most
    endpoint = environment.get("PET_RDZV_ENDPOINT", "").strip()
    if not endpoint and environment.get("PET_MASTER_ADDR"):
        endpoint = f"{environment['PET_MASTER_ADDR']}:{environment.get('PET_MASTER_PORT') or _PORT}"
    return number_of_machines([value for value in (nodes, endpoint) if value])


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
