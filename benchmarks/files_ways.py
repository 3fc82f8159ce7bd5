"""Ways in which a training script may write to files, for `files.py`: each with a folder of its own to do it in.

A way is Python that finds `d`, its folder, with `a.txt` ("mine"), `b.txt`, `data.npy`, `data.db`, a folder `sub` with
a file in it, a symbolic link `outside` and a hard link `same.txt` to files elsewhere.
"""

from dataclasses import dataclass

__all__ = ["WAYS", "Way"]


@dataclass(frozen=True)
class Way:
    """One way to write: its kind, its name, what it does, and where, when that is not in the project."""

    kind: str
    name: str
    code: str
    place: str = "project"


def _python() -> list[Way]:
    ways = {
        "open w": "open(d + '/a.txt', 'w').write('new')",
        "open a": "open(d + '/a.txt', 'a').write('new')",
        "os.open": "f = os.open(d + '/a.txt', os.O_WRONLY); os.write(f, b'NEW'); os.close(f)",
        "pathlib": "pathlib.Path(d, 'a.txt').write_text('new'); pathlib.Path(d, 'new.txt').write_text('new')",
        "shutil.copy": "shutil.copy(d + '/b.txt', d + '/a.txt')",
        "shutil.move": "shutil.move(d + '/a.txt', d + '/moved.txt')",
        "os.replace": "open(d + '/t', 'w').write('t'); os.replace(d + '/t', d + '/a.txt')",
        "os.remove": "os.remove(d + '/a.txt')",
        "shutil.rmtree": "shutil.rmtree(d + '/sub')",
        "rename a folder": "os.rename(d + '/sub', d + '/sub2')",
        "os.makedirs": "os.makedirs(d + '/x/y')",
        "os.truncate": "os.truncate(d + '/a.txt', 1)",
        "os.chmod": "os.chmod(d + '/a.txt', 0o600)",
        "os.utime": "os.utime(d + '/a.txt', (1, 1))",
        "np.save": "numpy.save(d + '/data.npy', numpy.ones(9))",
        "np.memmap r+": "m = numpy.lib.format.open_memmap(d + '/data.npy', mode='r+'); m[0] = 7; m.flush()",
        "torch.save": "torch.save({'w': torch.ones(3)}, d + '/a.txt')",
        "torch.jit.save": "torch.jit.save(torch.jit.trace(torch.nn.Linear(2, 2), torch.ones(1, 2)), d + '/a.txt')",
        "torch.from_file": "torch.from_file(d + '/a.txt', shared=True, size=4, dtype=torch.uint8).fill_(65)",
        "safetensors": "safetensors.torch.save_file({'w': torch.ones(3)}, d + '/a.txt')",
        "h5py": "h5py.File(d + '/a.txt', 'w').create_dataset('x', data=[1, 2])",
        "pickle": "pickle.dump([1], open(d + '/a.txt', 'wb'))",
        "sqlite3": "c = sqlite3.connect(d + '/data.db'); c.execute('insert into t values (1)'); c.commit(); c.close()",
        "logging": "h = logging.FileHandler(d + '/a.txt'); h.emit(logging.makeLogRecord({'msg': 'x'})); h.close()",
        "zipfile": "zipfile.ZipFile(d + '/new.zip', 'w').writestr('x', 'y')",
        "mmap": "f = open(d + '/a.txt', 'r+b'); m = mmap.mmap(f.fileno(), 0); m[:2] = b'XX'; m.close(); f.close()",
        "mkfifo": "os.mkfifo(d + '/pipe')",
    }
    return [Way("Python", name, code) for name, code in ways.items()]


def _native() -> list[Way]:
    ways = {
        "fopen w": "f = libc.fopen(p(d + '/a.txt'), b'w'); libc.fputs(b'new', f); libc.fclose(f)",
        "open, write": "f = libc.open(p(d + '/a.txt'), 1); libc.write(f, b'NEW', 3); libc.close(f)",
        "rename": "libc.rename(p(d + '/a.txt'), p(d + '/c.txt'))",
        "unlink": "libc.unlink(p(d + '/a.txt'))",
        "truncate": "libc.truncate(p(d + '/a.txt'), ctypes.c_long(1))",
        "mkdir": "libc.mkdir(p(d + '/made'), 0o755)",
        "symlink": "libc.symlink(b'a.txt', p(d + '/link'))",
    }
    return [Way("C", name, code) for name, code in ways.items()]


def _shell() -> list[Way]:
    lines = [
        "sed -i s/mine/new/ a.txt", "rm a.txt", "rm -r sub", "cp b.txt a.txt", "mv a.txt c.txt", "mv sub sub2",
        "echo x >> a.txt", "ln -s a.txt link", "ln b.txt second.txt", "mkdir made", "chmod 600 a.txt",
        "touch -d 2001-01-01 a.txt", "dd if=/dev/zero of=a.txt bs=8 count=1 status=none", "truncate -s 2 a.txt",
        "mkfifo pipe", "tar cf new.tar a.txt",
    ]  # fmt: skip
    return [Way("shell", line, f"subprocess.run({line!r}, shell=True, cwd=d, check=True)") for line in lines]


def _children() -> list[Way]:
    write = "open(d + '/a.txt', 'w').write('new')"
    command = '[sys.executable, {}\'-c\', \'open("a.txt", "w").write("new")\']'
    start = f"subprocess.run({command}, cwd=d)"
    fork = f"pid = os.fork()\n    if not pid:\n        {write}; os._exit(0)\n    os.waitpid(pid, 0)"
    process = "q = multiprocessing.get_context({!r}).Process(target=overwrite, args=(d,)); q.start(); q.join()"
    return [
        Way("child", "python -c", start.format("")),
        Way("child", "python -S -E -c", start.format("'-S', '-E', ")),
        Way("child", "os.fork", fork),
        Way("child", "multiprocessing", process.format("fork")),
        Way("child", "spawn", process.format("spawn")),
    ]


def _links() -> list[Way]:
    return [
        Way("link", "Python through a link", "open(d + '/outside', 'w').write('new')"),
        Way("link", "shell through a link", "subprocess.run('echo x >> outside', shell=True, cwd=d)"),
        Way("link", "Python, hard link", "open(d + '/same.txt', 'a').write('new')"),
        Way("link", "shell, hard link", "subprocess.run('echo x >> same.txt', shell=True, cwd=d)"),
    ]


def _elsewhere() -> list[Way]:
    ways = []
    for place in ("home", "temporary", "sibling", "disk"):
        ways += [
            Way(place, "Python", "open(d + '/a.txt', 'w').write('new')", place),
            Way(place, "C", "f = libc.fopen(p(d + '/a.txt'), b'w'); libc.fputs(b'new', f); libc.fclose(f)", place),
            Way(place, "sed -i", "subprocess.run('sed -i s/mine/new/ a.txt', shell=True, cwd=d)", place),
            Way(place, "rm", "subprocess.run('rm a.txt', shell=True, cwd=d)", place),
        ]
    return ways


WAYS = [*_python(), *_native(), *_shell(), *_children(), *_links(), *_elsewhere()]
"""All of them, in the order of the table."""
