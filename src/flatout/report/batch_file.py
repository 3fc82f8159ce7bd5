"""A batch file for SLURM that trains a script on the machines of a job."""

import re
import shlex
from collections.abc import Sequence

__all__ = ["batch_file"]

_LIMIT = "1-00:00:00"


def batch_file(
    name: str,
    command: Sequence[str],
    *,
    nodes: int,
    cpus: int = 0,
    gpus: int = 0,
    partition: str = "",
    limit: str = "",
) -> str:
    """Return the text of the file.

    `command`: what each machine starts; `cpus`, `gpus`: of a machine, 0 where they are not known or not there;
    `partition`: whose machines these are; `limit`: the longest time of a job in it.
    """
    asked = [
        f"--job-name={re.sub(r'[^A-Za-z0-9._-]', '_', name)}",
        f"--nodes={nodes}",
        "--ntasks-per-node=1",
        *([f"--cpus-per-task={cpus}"] if cpus else []),
        *([f"--gpus-per-node={gpus}"] if gpus else []),
        f"--time={limit or _LIMIT}",
        "--output=%x-%j.out",
    ]
    known = [f"# Cores and the longest time are those of the partition {partition}."] if partition and cpus else []
    cores = [
        "# srun does not take the cores of a task from the lines above.",
        'export SRUN_CPUS_PER_TASK="${SLURM_CPUS_PER_TASK:-1}"',
    ]
    lines = [
        "#!/bin/bash",
        *(f"#SBATCH {one}" for one in asked),
        *known,
        "",
        *(cores if cpus else []),
        "# One task on each machine: flatout starts the ranks there.",
        f"srun --kill-on-bad-exit=1 {shlex.join(command)}",
    ]
    return "\n".join(lines) + "\n"
