"""SLURM: the machines of a job step, where they meet, and what a batch file can be told of the machines there are."""

import re
import socket
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

from flatout.errors import UsageError

__all__ = ["STEP", "Partition", "default_partition", "first_host", "in_step", "machines_of_step"]

STEP = "srun --ntasks-per-node 1 flatout run --nproc-per-node gpu train.py"
"""A line that starts flatout on every machine of a job."""

_PORTS = 15_000, 10_000  # from there so many: below those that systems give to programs that ask for none
_PATIENCE_S = 10


@dataclass(frozen=True, slots=True)
class Partition:
    """The machines that a job gets which asks for no others."""

    name: str
    cpus: int  # of a machine, 0 where that is not known
    gpus: int
    limit: str  # the longest time of a job, "" where there is none


def in_step(environment: Mapping[str, str]) -> bool:
    """Return whether `srun` has started this process."""
    return "SLURM_STEP_ID" in environment and "SLURM_STEP_NUM_TASKS" in environment


def machines_of_step(environment: Mapping[str, str]) -> tuple[int, str, str]:
    """Return how many machines a job step has, where they meet, and a name that no other step has.

    Raises:
        UsageError: it has not started one task on each machine.
    """
    nodes = int(environment.get("SLURM_STEP_NUM_NODES") or environment.get("SLURM_NNODES") or 1)
    tasks = int(environment.get("SLURM_STEP_NUM_TASKS") or nodes)
    if tasks != nodes:
        raise UsageError(
            f"srun has started {tasks} tasks on {nodes} machines.",
            "flatout starts the ranks of a machine itself, so it needs one task on each.",
            f"Say so: {STEP}",
        )
    job, step = environment.get("SLURM_JOB_ID", "0"), environment.get("SLURM_STEP_ID", "0")
    if nodes == 1:
        return 1, "", ""
    host = first_host(environment.get("SLURM_STEP_NODELIST") or environment.get("SLURM_JOB_NODELIST") or "")
    first, many = _PORTS
    port = first + (int(re.sub(r"\D", "", job)[-9:] or 0) + 101 * int(re.sub(r"\D", "", step)[-9:] or 0)) % many
    return nodes, f"{_reachable(host)}:{port}", f"{job}.{step}"


def first_host(listed: str) -> str:
    """Return the first name of a SLURM node list: `gpu-07` of `gpu-[07-09,12],cpu1`."""
    match = re.match(r"([^,\[]*)(?:\[([^\],-]*)[^\]]*\]([^,]*))?", listed)
    return "".join(part or "" for part in match.groups()) if match else ""


def _reachable(host: str) -> str:
    """Return a node's name, or its address where the name is SLURM's own."""
    try:
        socket.getaddrinfo(host, None)
        return host
    except OSError:
        told = re.search(r"NodeAddr=(\S+)", _told(["scontrol", "show", "node", host, "--oneliner"]))
        return told[1] if told else host


def default_partition() -> Partition | None:
    """Return what SLURM says of the partition that jobs get which name none; None where it says nothing."""
    for line in _told(["sinfo", "--noheader", "--format=%P|%c|%G|%l"]).splitlines():
        name, _, rest = line.partition("|")
        if name.endswith("*") and rest.count("|") == 2:
            cpus, gres, limit = rest.split("|")
            gpus = sum(int(found) for found in re.findall(r"\bgpu(?::[^:,(]+)?:(\d+)", gres))
            return Partition(name[:-1], int(re.sub(r"\D", "", cpus) or 0), gpus, "" if limit == "infinite" else limit)
    return None


def _told(command: list[str]) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE_S, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""
