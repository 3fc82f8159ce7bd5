"""The process that starts the ranks of this machine with torch's elastic agent, and waits for them.

It runs by itself, named on a command line: what it imports stays out of the process that shows things to the user.
"""

import json
import logging
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import psutil
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from flatout.schema.ranks import LAUNCHER_VARIABLE, read_launch

__all__ = ["main", "own_address"]

_ENDED = "ended.json"


def main() -> int:
    """Start the ranks that the file named on the command line asks for; return their exit code."""
    file = Path(sys.argv[1])
    launch = read_launch(file)
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)
    os.environ[LAUNCHER_VARIABLE] = str(os.getpid())
    local = launch.nodes == 1
    address, interface = ("localhost", "lo") if local else own_address(launch.endpoint)
    if interface:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
    settings: dict[str, Any] = {"shutdown_timeout": 10} if _knows("shutdown_timeout") else {}
    config = LaunchConfig(
        min_nodes=launch.nodes,
        max_nodes=launch.nodes,
        nproc_per_node=launch.ranks,
        run_id=launch.job,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0" if local else launch.endpoint,
        rdzv_configs={"is_host": True} if local else {},
        max_restarts=0,
        monitor_interval=0.1,
        local_addr=address or None,
        logs_specs=DefaultLogsSpecs(log_dir=str(file.parent / "logs")),
        **settings,
    )
    return _ended(config, launch.command, file.parent / _ENDED)


def own_address(endpoint: str) -> tuple[str, str]:
    """Return this machine's address on the way to `endpoint`, and its interface; empty where it cannot be told.

    The machine's name is no help: on many it stands for an address that no other machine can reach.
    """
    host, _, port = endpoint.rpartition(":")
    try:
        kind, _, _, _, there = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_DGRAM)[0]
        with socket.socket(kind, socket.SOCK_DGRAM) as way:
            way.connect(there)  # no packet is sent
            address = str(way.getsockname()[0])
    except (OSError, ValueError):
        return "", ""
    interfaces = psutil.net_if_addrs()
    return address, next((name for name, has in interfaces.items() if address in {one.address for one in has}), "")


def _ended(config: LaunchConfig, command: tuple[str, ...], told: Path) -> int:
    """Run the ranks to their end and write down how each has ended that has failed."""
    try:
        elastic_launch(config, entrypoint=command[0])(*command[1:])
    except ChildFailedError as error:
        first, failure = error.get_first_failure()
        failed = {rank: each.exitcode for rank, each in error.failures.items()}
        told.write_text(json.dumps({"first": first, "exit_codes": failed}), encoding="utf-8")
        return _exit_code(failure.exitcode)
    except SignalException as error:
        return 128 + int(error.sigval)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return 0


def _exit_code(code: Any) -> int:
    return int(code) if code >= 0 else 128 - int(code)


def _knows(name: str) -> bool:
    """Return whether this version of torch has that setting of a launch."""
    return name in LaunchConfig.__dataclass_fields__
