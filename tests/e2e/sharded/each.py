"""Runs the trainings of this folder one after the other in one process, and keeps what each has made.

python each.py FOLDER NAME...      or, on two ranks: flatout run --nproc-per-node 2 --shard each.py FOLDER NAME...
"""

import contextlib
import io
import runpy
import sys
import traceback
from pathlib import Path

import torch

torch.set_num_threads(1)
top, here = Path(sys.argv[1]).resolve(), Path(__file__).resolve().parent
names = sys.argv[2:]
for name in names:
    folder = top / name
    folder.mkdir(parents=True, exist_ok=True)
    sys.argv = [name]
    with contextlib.chdir(folder), contextlib.redirect_stdout(io.StringIO()) as out:
        try:
            left = runpy.run_path(str(here / f"{name}.py"), run_name="__main__")
            if "model" in left:
                torch.save(left["model"].state_dict(), "weights.pt")
        except Exception:
            traceback.print_exc(file=out)
    (folder / "out.txt").write_text(out.getvalue())
