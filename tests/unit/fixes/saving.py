"""A table of ways to save and of ways to end a process, run with and without `async-checkpoint` in forked children.

Run as a script with a folder and the names of ways and endings: it imports torch once, forks a child for each
combination and arm, and prints how each ended. A child leaves this module at its end as any script does.
"""

import gc
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

WAYS = {
    "a new file": "torch.save(state, 'model.pt')",
    "over an old file": "keep('model.pt', 0o640); torch.save(state, 'model.pt')",
    "under a tight umask": "os.umask(0o077); torch.save(state, 'model.pt'); os.umask(0o022)",
    "one umask after the other": "torch.save(state, 'a.pt'); os.umask(0o027); torch.save(state, 'b.pt'); os.umask(0)",
    "through a link": "keep('real.pt', 0o600); os.symlink('real.pt', 'latest.pt'); torch.save(state, 'latest.pt')",
    "through a link to nothing": "os.symlink('real.pt', 'latest.pt'); torch.save(state, 'latest.pt')",
    "one of two names": "keep('one.pt', 0o644); os.link('one.pt', 'two.pt'); torch.save(state, 'one.pt')",
    "a file that is open": "f = keep('m.pt', 0o644); torch.save(state, 'm.pt'); open('seen', 'wb').write(f.read())",
    "a file object": "f = open('model.pt', 'wb'); torch.save(state, f); f.close()",
    "a path object": "import pathlib; torch.save(state, pathlib.Path('sub/../sub/model.pt'))",
    "nowhere": "torch.save(state, '/dev/null')",
    "a fifo": "os.mkfifo('pipe'); cat = subprocess.Popen('cat pipe > out', shell=True)\n"
    "torch.save(state, 'pipe'); cat.wait()",
    "names that are not ASCII": "torch.save(state, 'mod\\u00e8le.pt')",
    "a folder that is not ASCII": "os.mkdir('\\u00e9'); os.chdir('\\u00e9'); torch.save(state, 'm.pt')\n"
    "torch.save(state, os.path.abspath('n.pt'))",
    "the folder changed after": "torch.save(state, 'model.pt'); os.chdir('sub')",
    "changed in place after": "torch.save(state, 'model.pt'); state['x'].zero_(); state['list'].append(1)",
    "the same name thrice": "for n in range(3): state['n'] = n; torch.save(state, 'model.pt')",
    "six files": "for n in range(6): state['n'] = n; torch.save(state, f'{n}.pt')",
    "the last two kept": "for n in range(5):\n torch.save(state, f'{n}.pt')\n if n > 1: os.remove(f'{n - 2}.pt')",
    "put in its place": "torch.save(state, 'model.tmp'); os.replace('model.tmp', 'model.pt')",
    "its folder renamed": "torch.save(state, 'sub/model.pt'); os.rename('sub', 'old')",
    "its folder removed": "torch.save(state, 'sub/model.pt'); shutil.rmtree('sub')",
    "another mode after": "torch.save(state, 'model.pt'); os.chmod('model.pt', 0o400)",
    "copied": "torch.save(state, 'model.pt'); shutil.copy('model.pt', 'best.pt')",
    "copied by a program": "torch.save(state, 'model.pt'); subprocess.run(['cp', '-p', 'model.pt', 'best.pt'])",
    "read back": "torch.save(state, 'm.pt'); open('n', 'w').write(str(os.path.getsize('m.pt')))\n"
    "torch.save(torch.load('m.pt', weights_only=False), 'again.pt')",
    "in a thread": "t = threading.Thread(target=torch.save, args=(state, 'model.pt')); t.start(); t.join()",
    "then a fork": "torch.save(state, 'model.pt')\nif not os.fork():\n torch.save(state, 'child.pt'); os._exit(0)\n"
    "os.wait()",
    "by a child": "p = multiprocessing.get_context('fork').Process(target=torch.save, args=(state, 'model.pt'))\n"
    "p.start(); p.join()",
    "what cannot be saved": "try: torch.save({'f': lambda: 1}, 'model.pt')\nexcept Exception as e: note(e)",
    "no such folder": "try: torch.save(state, 'missing/model.pt')\nexcept Exception as e: note(e)",
    "more than a file may have": "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))\n"
    "try: torch.save(state, 'model.pt')\nexcept Exception as e: note(e)",
    "with a note of its owner": "keep('m.pt', 0o644); tag('m.pt'); torch.save(state, 'm.pt'); tagged('m.pt')",
    "other options after": "torch.save(state, 'm.pt'); set_crc(False); torch.save(state, 'n.pt'); set_crc(True)",
    "group of the folder": "os.chmod('sub', 0o2775); torch.save(state, 'sub/model.pt')",
}

ENDS = {
    "by itself": "",
    "sys.exit": "sys.exit(3)",
    "an error": "1 / 0",
    "_exit": "os._exit(0)",
    "_exit with a status": "os._exit(1)",
    "_exit by another name": "leave(4)",
    "_exit in a thread": "threading.Thread(target=lambda: os._exit(7)).start(); time.sleep(60)",
    "an error in a thread": "threading.excepthook = lambda a: os._exit(5)\n"
    "threading.Thread(target=lambda: 1 / 0).start(); time.sleep(60)",
    "abort": "os.abort()",
    "exec": "os.execv('/bin/sh', ['sh', '-c', 'ls > listed; exit 6'])",
    "kill": "os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)",
    "kill -9": "os.kill(os.getpid(), signal.SIGKILL)",
    "raise_signal": "signal.raise_signal(signal.SIGKILL)",
    "an alarm": "signal.setitimer(signal.ITIMER_REAL, 0.001); time.sleep(60)",
    "SIGTERM": "send(signal.SIGTERM)",
    "SIGHUP": "send(signal.SIGHUP)",
    "SIGINT": "send(signal.SIGINT)",
    "SIGINT without a handler": "signal.signal(signal.SIGINT, signal.SIG_DFL); send(signal.SIGINT)",
    "SIGUSR1": "send(signal.SIGUSR1)",
    "SIGTERM and sys.exit": "signal.signal(signal.SIGTERM, lambda *a: sys.exit(8)); send(signal.SIGTERM)",
    "SIGTERM and _exit": "signal.signal(signal.SIGTERM, lambda *a: os._exit(9)); send(signal.SIGTERM)",
    "SIGTERM twice": "def once(n, f): signal.signal(n, signal.SIG_DFL); os.kill(os.getpid(), n)\n"
    "signal.signal(signal.SIGTERM, once); send(signal.SIGTERM)",
    "SIGTERM and a save": "def last(n, f): torch.save(state, 'last.pt'); sys.exit(0)\n"
    "signal.signal(signal.SIGTERM, last); send(signal.SIGTERM)",
    "SIGHUP ignored": "signal.signal(signal.SIGHUP, signal.SIG_IGN); os.kill(os.getpid(), signal.SIGHUP)",
    "SIGTERM in a child": "child = os.fork()\nif not child: time.sleep(60)\n"
    "os.kill(child, signal.SIGTERM); sys.exit(os.waitpid(child, 0)[1])",
    "as a daemon": "if os.fork(): os._exit(0)\nopen('there', 'w').write(str(os.path.getsize('model.pt')))",
}

UNSEEN = {  # nothing in the process sees these: another process writes the files
    "_exit of the C library": "import ctypes; ctypes.CDLL(None)._exit(5)",
    "abort of the C library": "import ctypes; ctypes.CDLL(None).abort()",
    "a crash": "import ctypes; ctypes.string_at(0)",
    "a crash while a forked child lives": "import ctypes\nif os.fork(): ctypes.string_at(0)\ntime.sleep(4); leave(0)",
    "kill of the C library": "import ctypes; ctypes.CDLL(None).kill(os.getpid(), 9)",
    "SIGKILL from outside": "send(signal.SIGKILL)",
    "SIGKILL by a descriptor": "signal.pidfd_send_signal(os.pidfd_open(os.getpid()), signal.SIGKILL)",
    "no processor time left": "import resource; resource.setrlimit(resource.RLIMIT_CPU, (1, 1))\nwhile True: pass",
    "its group killed": "os.setpgid(0, 0); import ctypes; ctypes.CDLL(None).killpg(0, 9)",
}
ENDS_AND_UNSEEN = ENDS | UNSEEN
_LONGEST_WAIT_S = 60


def cases(ways, ends):
    return [(way, end, arm) for way in ways for end in ends for arm in ("plain", "ours")]


def outcomes(folder, ways, ends):
    """Return how each case ended, and the tree of files that it left, by way, end and arm."""
    words = [sys.executable, __file__, str(folder), json.dumps([list(ways), list(ends)])]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    statuses = json.loads(done.stdout.splitlines()[-1])
    found = {}
    for number, case in enumerate(cases(ways, ends)):
        top = Path(folder) / str(number)
        if case[1] in UNSEEN:
            wait_for_files(top)
        found[case] = (statuses[number], tree(top))
    return found


def wait_for_files(top):
    """Wait until what was still to be written has its place: then its folder is gone."""
    until = time.monotonic() + _LONGEST_WAIT_S
    while time.monotonic() < until and any(top.rglob(".*.????????????")):
        time.sleep(0.05)


def tree(top):
    found = {}
    for path in sorted(top.rglob("*")):
        facts = path.lstat()
        kind = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None
        found[str(path.relative_to(top))] = (oct(facts.st_mode), facts.st_uid, facts.st_gid, kind)
    return found


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[3]))
    import torch

    from flatout.fixes.checkpoint.snapshot import Snapshot
    from flatout.fixes.core.apply import install_fixes
    from flatout.probe.core.event_log import EventLog
    from flatout.probe.core.seams import Seams
    from flatout.probe.model.modules import ModuleWatch
    from flatout.schema.trial import Selection

    def install():
        """Put the fix in place, with a disk that is slow enough for everything to come before it."""
        sites = install_fixes([Selection("async-checkpoint")], Seams(), ModuleWatch(EventLog(id, id)))
        assert not sites[0].failure, sites[0].failure
        write = Snapshot.write

        def slowly(snapshot, path):
            time.sleep(2 if case[1] in UNSEEN else 0.08)
            write(snapshot, path)

        Snapshot.write = slowly

    def keep(name, mode):
        """Make a file that is there before, and return it open."""
        Path(name).write_bytes(b"old")
        os.chmod(name, mode)
        return open(name, "rb")

    def note(error):
        Path("error").write_text(f"{type(error).__name__}: {str(error).splitlines()[0][:30]}")

    def tag(name):
        try:
            os.setxattr(name, "user.of", b"me")
        except OSError:
            Path("no-tags").touch()

    def tagged(name):
        Path("tag").write_bytes(os.getxattr(name, "user.of") if not os.path.exists("no-tags") else b"")

    def send(number):
        """Have the parent send a signal, and do something else meanwhile."""
        os.write(told, bytes([number]))
        while True:
            time.sleep(0.01)

    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # which nohup would have us ignore
    folder, (ways, ends) = sys.argv[1], json.loads(sys.argv[2])
    gc.freeze()  # children that end leave what was imported alone: 0.4 s of CPU for each, not 1.2
    statuses = []
    for number, case in enumerate(cases(ways, ends)):
        way, end, arm = case
        os.makedirs(f"{folder}/{number}/sub")
        heard, told = os.pipe()
        child = os.fork()
        if not child:
            os.close(heard)
            os.set_inheritable(told, False)
            os.chdir(f"{folder}/{number}")
            os.dup2(os.open(os.devnull, os.O_RDWR), 1)
            os.dup2(1, 2)
            if arm == "ours":
                install()
            state = {"x": torch.arange(5000.0), "list": [1, {"a": (2, "b")}], "n": 0}
            break
        os.close(told)
        asked = os.read(heard, 1)
        if asked:
            os.kill(child, asked[0])
        os.close(heard)
        statuses.append(os.waitpid(child, 0)[1] & 0xFF7F)
        if end == "as a daemon":
            time.sleep(0.3)
    else:
        print(json.dumps(statuses))
        sys.exit(0)
    exec(WAYS[way])
    exec(ENDS_AND_UNSEEN[end])
    signal.alarm(0)
