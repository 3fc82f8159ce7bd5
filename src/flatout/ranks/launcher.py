"""The process that starts the ranks of this machine with torch's elastic agent, and waits for them.

It runs by itself, named on a command line: what it imports stays out of the process that shows things to the user.
"""

import logging
import os
import signal
import sys
from pathlib import Path
from typing import Any

from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.elastic.rendezvous import RendezvousConnectionError, RendezvousError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from flatout.ranks.hosts.addresses import is_here, own_address
from flatout.ranks.hosts.left_over import end_left_over
from flatout.ranks.hosts.watch import MEETING_S, HostWatch
from flatout.schema.ranks import (
    CANNOT_BEGIN,
    END_FILE,
    LAUNCHER_VARIABLE,
    LaunchEnd,
    RankLaunch,
    read_launch,
    write_end,
)

__all__ = ["main"]

_LOGS = "logs"


def main() -> int:
    """Start the ranks that the file named on the command line asks for; return their exit code."""
    file = Path(sys.argv[1])
    launch = read_launch(file)
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)
    os.environ[LAUNCHER_VARIABLE] = str(os.getpid())
    address, interface = ("localhost", "lo") if launch.nodes == 1 else own_address(launch.endpoint)
    if interface:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
    if launch.nodes == 1:
        end = _ended(_config(launch, file.parent, address, host=True), launch.command)
    else:
        watch = HostWatch(launch, address, file.parent)
        watch.start()
        end = watch.settle(_ended_among_hosts(launch, file.parent, address))
    if end.elsewhere or any(code < 0 for code in end.exit_codes.values()):
        end_left_over()
    write_end(end, file.parent / END_FILE)
    return end.exit_code


def _ended_among_hosts(launch: RankLaunch, folder: Path, address: str) -> LaunchEnd:
    """Run the ranks of this machine; one machine is that where all meet."""
    host = is_here(launch.endpoint)
    try:
        try:
            return _ended(_config(launch, folder, address, host=host), launch.command)
        except RendezvousConnectionError:
            if not host or any((folder / _LOGS).glob("*/attempt_*")):  # ranks have been started
                raise
        return _ended(_config(launch, folder, address, host=False), launch.command)  # another launcher of this machine
    except (RendezvousError, RuntimeError, OSError) as error:
        why = f"{launch.endpoint}: {type(error).__name__}: {error.__cause__ or error}"
        return LaunchEnd(exit_code=CANNOT_BEGIN, error=why[:500])


def _config(launch: RankLaunch, folder: Path, address: str, *, host: bool) -> LaunchConfig:
    """Return what torch's agent is asked to do; `host`: the others find each other by this process."""
    settings: dict[str, Any] = {"shutdown_timeout": 10} if _knows("shutdown_timeout") else {}
    among = {"read_timeout": MEETING_S, "join_timeout": MEETING_S} if launch.nodes > 1 else {}
    return LaunchConfig(
        min_nodes=launch.nodes,
        max_nodes=launch.nodes,
        nproc_per_node=launch.ranks,
        run_id=launch.job,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0" if launch.nodes == 1 else launch.endpoint,
        rdzv_configs={"is_host": host, **among},
        max_restarts=0,
        monitor_interval=0.1,
        local_addr=address or None,
        logs_specs=DefaultLogsSpecs(log_dir=str(folder / _LOGS)),
        **settings,
    )


def _ended(config: LaunchConfig, command: tuple[str, ...]) -> LaunchEnd:
    """Run the ranks to their end; return how each has ended that has failed."""
    try:
        elastic_launch(config, entrypoint=command[0])(*command[1:])
    except ChildFailedError as error:
        first, failure = error.get_first_failure()
        failed = {rank: each.exitcode for rank, each in error.failures.items()}
        return LaunchEnd(exit_code=_exit_code(failure.exitcode), first=first, exit_codes=failed)
    except SignalException as error:
        return LaunchEnd(exit_code=128 + int(error.sigval))
    except KeyboardInterrupt:
        return LaunchEnd(exit_code=128 + signal.SIGINT)
    return LaunchEnd(exit_code=0)


def _exit_code(code: Any) -> int:
    return int(code) if code >= 0 else 128 - int(code)


def _knows(name: str) -> bool:
    """Return whether this version of torch has that setting of a launch."""
    return name in LaunchConfig.__dataclass_fields__
