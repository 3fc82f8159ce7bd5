"""A real SLURM of two nodes: Debian's slurm-wlm and munge, on the two hosts of `tests.cluster.hosts`."""

import contextlib
import functools
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

INSTALL_S = 400
UP_S = 40.0
PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "scancel", "squeue")
CONF = """
ClusterName=test
SlurmctldHost=host1(10.77.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SwitchType=switch/none
ReturnToService=2
KillWait=10
SlurmdParameters=config_overrides
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
NodeName=host1 NodeAddr=10.77.0.1 CPUs={cpus} RealMemory=1000 State=UNKNOWN
NodeName=host2 NodeAddr=10.77.0.2 CPUs={cpus} RealMemory=1000 State=UNKNOWN
PartitionName=debug Nodes=ALL Default=YES MaxTime=2:00:00 State=UP
"""


def _missing():
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
    return [name for name in PROGRAMS if shutil.which(name, path=path) is None]


@functools.cache
def why_no_slurm():
    """Why there can be no SLURM here; "" where there can: Debian's package manager is asked for it."""
    if _missing() and shutil.which("apt-get") and os.geteuid() == 0:
        install = "apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq slurm-wlm munge"
        with contextlib.suppress(subprocess.TimeoutExpired):  # one of the workers installs, the others wait for it
            lock = Path(tempfile.gettempdir()) / "flatout-slurm.lock"
            subprocess.run(["flock", str(lock), "sh", "-c", f"which srun || ({install})"],
                           capture_output=True, timeout=INSTALL_S)  # fmt: skip
    missing = _missing()
    return f"{', '.join(missing)} not installed (Debian: slurm-wlm, munge)" if missing else ""


class Slurm:
    """The cluster, spoken to on the first host."""

    def __init__(self, hosts, folder):
        self.hosts, self.folder = hosts, Path(folder)
        self.daemons = []
        self.settings = {"SLURM_CONF": str(self.folder / "slurm.conf")}

    def up(self):
        self.folder.mkdir()
        (self.folder / "state").mkdir()
        (self.folder / "slurm.conf").write_text(CONF.format(folder=self.folder, cpus=os.cpu_count()))
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        own = [f"--{name}={self.folder}/munge.{name.partition('-')[0]}" for name in
               ("key-file", "pid-file", "seed-file", "log-file", "socket")]  # fmt: skip
        self._begin(["munged", "--foreground", "--force", *own], "munged")
        one, two = self.hosts
        self._begin(one.enter("slurmctld", "-D", "-f", self.folder / "slurm.conf"), "slurmctld")
        for host in (one, two):
            self._begin(host.enter("slurmd", "-D", "-f", self.folder / "slurm.conf", "-N", host.name), host.name)
        until = time.monotonic() + UP_S
        while "2 idle" not in self("sinfo", "--noheader", "--format=%D %t"):
            assert time.monotonic() < until, self.logs()
            time.sleep(0.2)

    def _begin(self, line, name):
        path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
        with (self.folder / f"{name}.out").open("wb") as out:
            daemon = subprocess.Popen(
                [*map(str, line)],
                env={**os.environ, **self.settings, "PATH": path},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
            )
        self.daemons.append(daemon)

    def __call__(self, *words):
        """Run a short command on the first host; return what it prints."""
        line = self.hosts[0].enter("env", *(f"{name}={value}" for name, value in self.settings.items()), *words)
        done = subprocess.run(line, capture_output=True, text=True, timeout=60)
        return done.stdout + done.stderr

    def start(self, *words, **environment):
        """Start a command of SLURM in the first host's project."""
        return self.hosts[0].start(*words, **self.settings, **environment)

    def logs(self):
        return "\n".join(path.read_text(errors="replace")[-3000:] for path in self.folder.glob("*.[lo][ou][gt]"))

    def down(self):
        for daemon in reversed(self.daemons):
            daemon.terminate()
        for daemon in self.daemons:
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()


@contextlib.contextmanager
def slurm_of(hosts, folder):
    """SLURM on two hosts, until the end."""
    found = Slurm(hosts, folder)
    try:
        found.up()
        yield found
    finally:
        found.down()
