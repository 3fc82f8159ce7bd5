"""One script on two hosts, and on two nodes of a SLURM: whether it trains as one process, and how a failure ends.

The hosts are namespaces of this machine with a cable between them (tests/cluster), each with its own processes, names,
addresses and memory. A training that does not end is broken in one way; printed is how long it took until
`flatout run` had ended on both hosts, whether each named the cause, and what was left behind: processes, files in
/dev/shm, temporary folders. Needs root, iproute2 and, for SLURM, Debian's slurm-wlm and munge.

    nice -n 19 python benchmarks/hosts.py [--quick] [--record]
"""

import argparse
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from record import record

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.cluster import hosts as on_hosts
from tests.cluster import slurm as on_slurm
from tests.cluster.test_slurm import STEP
from tests.cluster.test_two_hosts import ENDLESS, LAUNCH, plain_script

LOADED_S = 300.0  # for the first steps, on a busy machine


@dataclass
class Case:
    """What was seen of one way to train or to fail."""

    seconds: list[float] = field(default_factory=list)
    right: int = 0
    left: int = 0


def lines_of(text: str) -> list[str]:
    """Return what the script printed of its epochs."""
    return [line for line in text.splitlines() if re.match(r"\d ", line)]


def alone(folder: Path) -> list[str]:
    (folder / "train.py").write_text(plain_script())
    return lines_of(subprocess.run([sys.executable, "train.py"], cwd=folder, capture_output=True, text=True).stdout)


@contextmanager
def fresh() -> Iterator[Any]:
    """Two hosts, for one training."""
    with tempfile.TemporaryDirectory() as top, on_hosts.two_hosts(Path(top, "hosts")) as hosts:
        yield hosts


def started(hosts: Any, script: str) -> list[Any]:
    for host in hosts:
        (host.project / "train.py").write_text(script)
    return [host.flatout(*LAUNCH) for host in hosts]


def wait_for_steps(process: Any) -> None:
    until = time.monotonic() + LOADED_S
    while "running" not in process.paths[0].read_text():
        if time.monotonic() > until or process.poll() is not None:
            sys.exit(process.paths[1].read_text())
        time.sleep(0.1)


def train(case: Case, expected: list[str]) -> None:
    with fresh() as hosts:
        ended = [on_hosts.wait(one, LOADED_S) for one in started(hosts, plain_script())]
        case.seconds.append(max(one.took_s for one in ended))
        case.right += lines_of(ended[0].out) == expected and not ended[1].out and not any(one.code for one in ended)
        case.left += sum(len(host.left_behind()) for host in hosts)


def fail(case: Case, act: Callable[[Any], object], causes: tuple[str, str]) -> None:
    with fresh() as hosts:
        processes = started(hosts, ENDLESS)
        wait_for_steps(processes[0])
        act(hosts)
        began = time.monotonic()
        ended = [on_hosts.wait(one, LOADED_S) for one in processes]
        case.seconds.append(time.monotonic() - began)
        case.right += all(cause in one.err for cause, one in zip(causes, ended, strict=True))
        case.left += sum(len(host.left_behind()) for host in hosts)


def launcher_of(host: Any) -> Any:
    return next(one for one in host.processes() if "flatout.ranks.launcher" in " ".join(one.cmdline()))


FAILURES: dict[str, tuple[Callable[[Any], object], tuple[str, str]]] = {
    "a rank gets SIGKILL": (
        lambda hosts: hosts[1].rank().kill(),
        ("rank 1 on host2 was killed by SIGKILL", "rank 1 was killed by SIGKILL"),
    ),
    "the cable is cut": (
        lambda hosts: hosts[1].cut(),
        ("host2 cannot be reached any more", "host1 cannot be reached any more"),
    ),
    "flatout gets SIGKILL": (
        lambda hosts: launcher_of(hosts[1]).kill(),
        ("flatout has ended on host2 without a word", ""),
    ),
}


def on_nodes(cases: dict[str, Case], expected: list[str]) -> None:
    """Train on two nodes of a SLURM, and cancel a job."""
    with fresh() as hosts, on_slurm.slurm_of(hosts, hosts[0].folder / "slurm") as slurm:
        trained, cancelled = cases["SLURM: trains"], cases["SLURM: scancel"]
        (hosts[0].project / "train.py").write_text(plain_script())
        ended = on_hosts.wait(slurm.start(*STEP, "train.py"), LOADED_S)
        trained.seconds.append(ended.took_s)
        trained.right += lines_of(ended.out) == expected and ended.code == 0
        trained.left += sum(len(host.left_behind()) for host in hosts)
        (hosts[0].project / "train.py").write_text(ENDLESS)
        process = slurm.start(*STEP, "train.py")
        wait_for_steps(process)
        began = time.monotonic()
        slurm("scancel", "--user", "root")
        ended = on_hosts.wait(process, LOADED_S)
        cancelled.seconds.append(time.monotonic() - began)
        cancelled.right += ended.code != 0
        cancelled.left += sum(len(host.left_behind()) for host in hosts)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    rounds = 1 if options.quick else 3
    if on_hosts.why_no_hosts():
        print(f"not measured: {on_hosts.why_no_hosts()}")
        return
    names = ["trains", *FAILURES]
    if on_slurm.why_no_slurm():
        print(f"no SLURM: {on_slurm.why_no_slurm()}")
    else:
        names += ["SLURM: trains", "SLURM: scancel"]
    cases = {name: Case() for name in names}
    with tempfile.TemporaryDirectory() as top:
        expected = alone(Path(top))
    for _ in range(rounds):
        train(cases["trains"], expected)
        for name, (act, causes) in FAILURES.items():
            fail(cases[name], act, causes)
        if "SLURM: trains" in cases:
            on_nodes(cases, expected)
    print(f"{'':22} {'as it should':>12} {'seconds':>8} {'least':>6} {'most':>6} {'left behind':>12}")
    for name, case in cases.items():
        middle, low, high = statistics.median(case.seconds), min(case.seconds), max(case.seconds)
        print(f"{name:22} {case.right:>9}/{rounds} {middle:8.1f} {low:6.1f} {high:6.1f} {case.left:12}")
        if options.record:
            record("hosts", name, middle, low=low, high=high, n=rounds, n_of="trainings", unit="s",
                   note=f"{case.right} as they should be, {case.left} left behind")  # fmt: skip


if __name__ == "__main__":
    main()
