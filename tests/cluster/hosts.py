"""Two hosts on one machine: namespaces of network, names, processes, mounts and memory, joined by one cable.

Each host is held by one process; when that ends, so does everything on the host. As on Debian, a host's own name stands
for 127.0.1.1 on it, where no other host can reach it. Needs root and iproute2.
"""

import contextlib
import functools
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil

ADDRESS = "10.77.0.{number}"
READY_S = 10.0
INIT = """
hostname {name}
mount --bind {folder}/hosts /etc/hosts
mount -t tmpfs none /dev/shm
trap '' CHLD
touch {folder}/ready
exec sleep infinity
"""


@dataclass
class Ended:
    """How a command on a host ended, after how long, and what it said."""

    code: int
    took_s: float
    out: str
    err: str


@dataclass
class Host:
    """One of the hosts, with a folder of its own."""

    number: int
    folder: Path
    outer: subprocess.Popen = None
    started: list = field(default_factory=list)

    @property
    def name(self):
        return f"host{self.number}"

    @property
    def address(self):
        return ADDRESS.format(number=self.number)

    @property
    def project(self):
        return self.folder / "project"

    @functools.cached_property
    def pid(self):
        """The process that holds the host, as seen from outside."""
        (child,) = psutil.Process(self.outer.pid).children()
        return child.pid

    def boot(self):
        for name in ("project", "tmp", "state"):
            (self.folder / name).mkdir(parents=True)
        names = [f"{ADDRESS.format(number=other)} host{other}" for other in (1, 2) if other != self.number]
        text = "\n".join(["127.0.0.1 localhost", f"127.0.1.1 {self.name}", *names, ""])
        (self.folder / "hosts").write_text(text)
        script = INIT.format(name=self.name, folder=self.folder)
        own = ["--net", "--uts", "--ipc", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"]
        with (self.folder / "boot.err").open("wb") as err:
            self.outer = subprocess.Popen(["unshare", *own, "bash", "-ec", script], stderr=err)
        until = time.monotonic() + READY_S
        while not (self.folder / "ready").exists():
            assert time.monotonic() < until and self.outer.poll() is None, f"{self.name} does not come up"
            time.sleep(0.02)

    def enter(self, *words):
        """Return the command line that runs `words` on this host."""
        return ["nsenter", "--target", str(self.pid), "-n", "-u", "-i", "-m", "-p", "--", *map(str, words)]

    def do(self, *words):
        """Run a short command and return what it prints."""
        return subprocess.run(self.enter(*words), check=True, capture_output=True, text=True, timeout=60).stdout

    def start(self, *words, **environment):
        """Start a command in the host's project."""
        paths = [self.folder / f"{len(self.started)}.{kind}" for kind in ("out", "err")]
        own = {"TMPDIR": self.folder / "tmp", "XDG_STATE_HOME": self.folder / "state", "PYTHONUNBUFFERED": "1"}
        own |= {"OMP_NUM_THREADS": "1"} | environment
        settings = [f"{name}={value}" for name, value in own.items()]
        with paths[0].open("wb") as out, paths[1].open("wb") as err:
            line = self.enter("env", "-C", self.project, *settings, *words)
            process = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
        process.paths, process.began = paths, time.monotonic()
        self.started.append(process)
        return process

    def flatout(self, *words, **environment):
        return self.start(sys.executable, "-m", "flatout", *words, **environment)

    def processes(self):
        """Every process of the host but the one that holds it and SLURM's own, as seen from outside."""
        space = os.readlink(f"/proc/{self.pid}/ns/pid")
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(OSError, psutil.Error):
                inside = os.readlink(f"/proc/{process.pid}/ns/pid") == space
                own = process.pid == self.pid or process.name().startswith("slurm")
                if inside and not own and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def rank(self):
        """The process of this host that trains."""
        (found,) = [
            one
            for one in self.processes()
            if one.cmdline()[-1:] == ["train.py"] and not {"flatout", "-c"} & set(one.cmdline()[:3])
            if "flatout.engine.process.rank_start" not in one.cmdline()
        ]
        return found

    def left_behind(self):
        """Return what is left of processes, of files in memory and of temporary folders."""
        until = time.monotonic() + 10
        while self.processes() and time.monotonic() < until:
            time.sleep(0.1)
        found = [" ".join(one.cmdline()) for one in self.processes()]
        found += self.do("ls", "/dev/shm").split()
        kept = (str(path) for path in (self.folder / "tmp").iterdir())
        return found + [path for path in kept if "torchinductor_" not in path]  # torch's own, of any training

    def stand_still(self, seconds):
        """Stop every process of the host for a while."""
        still = self.processes()
        for process in still:
            process.suspend()
        time.sleep(seconds)
        for process in [*still, *self.started]:  # nsenter stops with what it has started
            process.send_signal(signal.SIGCONT)

    def cut(self):
        self.do("ip", "link", "set", "cable", "down")

    def heal(self):
        self.do("ip", "link", "set", "cable", "up")

    def down(self):
        if self.outer is not None:
            with contextlib.suppress(psutil.Error):
                psutil.Process(self.pid).kill()
            self.outer.wait(10)
        for process in self.started:
            process.kill()
            process.wait(10)


def wait(process, timeout=120):
    """Wait for a command that `Host.start` has started."""
    code = process.wait(timeout)
    took = time.monotonic() - process.began
    return Ended(code, took, *(path.read_text(errors="replace") for path in process.paths))


@functools.cache
def why_no_hosts():
    """Why this machine can have no hosts in it; "" where it can."""
    if sys.platform != "linux":
        return "hosts in one machine are namespaces of Linux"
    if os.geteuid() != 0:
        return "hosts in one machine need root"
    missing = [name for name in ("ip", "nsenter", "unshare") if shutil.which(name) is None]
    if missing:
        return f"{' and '.join(missing)} not installed (iproute2, util-linux)"
    tried = subprocess.run(
        ["unshare", "--net", "--uts", "--ipc", "--mount", "--pid", "--fork", "--mount-proc", "ip", "link"],
        capture_output=True,
        text=True,
    )
    return f"namespaces are refused here ({tried.stderr.strip()})" if tried.returncode else ""


@contextlib.contextmanager
def two_hosts(folder):
    """Two hosts that reach each other, until the end."""
    hosts = [Host(number, Path(folder) / f"host{number}") for number in (1, 2)]
    try:
        for host in hosts:
            host.boot()
        one, two = hosts
        outside = ["nsenter", "--target", str(one.pid), "-n", "--"]
        cable = ["ip", "link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns", str(two.pid)]
        subprocess.run([*outside, *cable], check=True, timeout=30)
        for host in hosts:
            host.do("ip", "link", "set", "lo", "up")
            host.do("ip", "addr", "add", f"{host.address}/24", "dev", "cable")
            host.heal()
        yield hosts
    finally:
        for host in hosts:
            host.down()
