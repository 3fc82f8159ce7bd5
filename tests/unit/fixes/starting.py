"""Scripts run to their end as `flatout run` has them, each under each fix, in children of one process.

Run as a script with a folder, a script and the selections of fixes: it imports torch once and forks a child for each of
them, and one without any. A child puts the fixes in place by the code that `flatout run` has put them in place by. It
leaves out the interpreter's last clean-up, 1.1 s of CPU for what was imported: ten times what a script takes.
"""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

SLOW_DISK_S = 0.02  # so that saving ends after whatever the script does next


@dataclass
class Ran:
    """What came of a script: its exit code, what it printed, the folder with its files, and the hits of the fix."""

    code: int
    out: str
    err: str
    folder: Path
    hits: dict
    failure: str


def outcomes(folder, script, selections):
    """Return what came of `script` alone and under each of `selections`, a list of (fix, settings)."""
    words = [sys.executable, __file__, str(folder), str(script), json.dumps(selections)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    codes = json.loads(done.stdout.splitlines()[-1])
    return [_ran(Path(folder) / str(number), code) for number, code in enumerate(codes)]


def _ran(place, code):
    hits, failure, said = {}, "", place / "order" / "acts.jsonl"
    last = {each["pid"]: each for each in map(json.loads, said.read_text().splitlines())} if said.exists() else {}
    for each in last.values():
        (site,) = each["sites"]
        failure = failure or site["failure"]
        for name, count in site["hits"].items():
            hits[name] = hits.get(name, 0) + count
    out, err = ((place / name).read_text() for name in ("out", "err"))
    return Ran(code, out, err, place / "work", hits, failure)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[3]))
    import atexit
    import runpy
    import time

    from functorch.compile import min_cut_rematerialization_partition, nop
    from torch._dynamo.backends.common import aot_autograd

    from flatout.fixes import compiled_module
    from flatout.fixes.checkpoint import snapshot
    from flatout.fixes.core.catalog import fixes as every_fix
    from flatout.fixes.core.under_recipe import train_under
    from flatout.schema.order import Order
    from flatout.schema.trial import Selection

    def as_quick():
        """Cut graphs in two as for inductor, and run them without generated code; write to a slow disk."""
        cut = aot_autograd(fw_compiler=nop, partition_fn=min_cut_rematerialization_partition)
        compiled_module._inductor = lambda graph, inputs, *, options: cut(graph, inputs)
        write = snapshot.Snapshot.write

        def slowly(snapshot, path):
            time.sleep(SLOW_DISK_S)
            write(snapshot, path)

        snapshot.Snapshot.write = slowly

    def become(place, selection):
        """Be the process that runs the script in `place`, under a fix or under none."""
        for number, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(place / name, os.O_WRONLY | os.O_CREAT), number)
        os.chdir(place / "work")
        if selection is not None:
            as_quick()
            fixes = (Selection(*selection),)
            train_under(Order(mode="run", folder=str(place / "order"), script=script, protect_files=False, fixes=fixes))

    every_fix()  # imported once, here
    folder, script, selections = Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
    codes = []
    for number, selection in enumerate([None, *selections]):
        place = folder / str(number)
        (place / "order").mkdir(parents=True)
        (place / "work").mkdir()
        child = os.fork()
        if not child:
            become(place, selection)
            break
        codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    else:
        print(json.dumps(codes))
        sys.exit(0)
    sys.argv = [script]
    runpy.run_path(script, run_name="__main__")
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
