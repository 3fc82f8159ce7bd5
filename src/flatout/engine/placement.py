"""How many ranks run where, of the words on the command line and of what a job scheduler says."""

import os
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from flatout.errors import UsageError

__all__ = ["Placement", "first_host", "place"]

_MOST_RANKS = 4096
_SHARDS = ("all", "node")
_ADVICE = "Try: flatout run --nproc-per-node 2 train.py"


@dataclass(frozen=True, slots=True)
class Placement:
    """The ranks of this machine, how many machines there are, and where they meet."""

    ranks: int
    nodes: int = 1
    endpoint: str = ""
    job: str = ""
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
    number = _number_of_ranks(ranks, environment)
    shard = next((one for one in reversed(machines) if one in _SHARDS), "")
    machines = [one for one in machines if one not in _SHARDS]
    nodes, endpoint = _machines(machines)
    if not machines and "SLURM_PROCID" in environment:
        nodes, endpoint = _of_slurm(environment)
    if nodes > 1 and not endpoint:
        raise UsageError(
            f"--nnodes {nodes} needs a place where the machines meet.",
            advice="Name one of them and a free port of it, the same on all: --rdzv-endpoint HOST:29400",
        )
    if number * nodes > _MOST_RANKS:
        raise UsageError(f"{number * nodes} ranks are more than flatout starts ({_MOST_RANKS}).", advice=_ADVICE)
    job = environment.get("SLURM_JOB_ID", "flatout") if nodes > 1 else uuid.uuid4().hex
    return Placement(number, nodes, endpoint, job, shard)


def _number_of_ranks(text: str, environment: Mapping[str, str]) -> int:
    if text.strip().lower() == "gpu":
        number = _num_gpus(environment)
        if not number:
            raise UsageError("--nproc-per-node gpu: this machine shows no GPU.", advice=_ADVICE)
        return number
    if not re.fullmatch(r"[1-9]\d{0,3}", text.strip()):
        raise UsageError(f"--nproc-per-node {text}: write a number of processes, or gpu.", advice=_ADVICE)
    return int(text)


def _machines(values: Sequence[str]) -> tuple[int, str]:
    """Return the number of machines and where they meet, of values that tell themselves apart."""
    nodes, endpoint = 1, ""
    for value in values:
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


def _of_slurm(environment: Mapping[str, str]) -> tuple[int, str]:
    """Return the machines of a job step, as `srun` names them to each of its tasks.

    Raises:
        UsageError: it has not started one task on each machine.
    """
    nodes = int(environment.get("SLURM_STEP_NUM_NODES") or environment.get("SLURM_NNODES") or 1)
    tasks = int(environment.get("SLURM_STEP_NUM_TASKS") or environment.get("SLURM_NTASKS") or nodes)
    if tasks != nodes:
        raise UsageError(
            f"srun has started {tasks} tasks on {nodes} machines.",
            "flatout starts the ranks of a machine itself, so it needs one task on each.",
            "Say so: srun --ntasks-per-node 1 flatout run --nproc-per-node gpu train.py",
        )
    host = first_host(environment.get("SLURM_STEP_NODELIST") or environment.get("SLURM_JOB_NODELIST") or "")
    port = 15000 + int(re.sub(r"\D", "", environment.get("SLURM_JOB_ID", "0"))[-4:] or 0)
    return nodes, f"{host}:{port}" if nodes > 1 else ""


def first_host(listed: str) -> str:
    """Return the first name of a SLURM node list: `gpu-07` of `gpu-[07-09,12],cpu1`."""
    match = re.match(r"([^,\[]*)(?:\[([^\],-]*)[^\]]*\]([^,]*))?", listed)
    return "".join(part or "" for part in match.groups()) if match else ""


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
