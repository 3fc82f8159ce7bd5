"""Runs trainings of this folder one after the other in one process, and keeps what each has made.

    python each.py FOLDER NAME...      or, on two ranks: flatout run --nproc-per-node 2 each.py FOLDER NAME...

Writes NAME/out.txt, NAME/weights.pt, NAME/seconds.txt and, on ranks, NAME/modules.json and NAME/inputs.json below
FOLDER.
"""

import contextlib
import io
import json
import runpy
import sys
import time
import traceback
from dataclasses import asdict
from pathlib import Path

import torch


def accounts() -> tuple[dict, list]:
    """Return what a rank has noted of modules and loaders since the last time; nothing in a plain process."""
    rank = sys.modules.get("flatout.ranks.rank")
    if rank is None or not rank._attached:
        return {}, []
    account = rank._attached[-1]._account
    found = {name: asdict(module) for name, module in account._modules.items()}
    inputs = list(map(asdict, account._inputs.values()))
    account._modules.clear()
    account._inputs.clear()
    return found, inputs


def weights(left: dict) -> list:
    modules = [left[name] for name in ("model", "generator", "critic") if name in left]
    return [one.detach().clone() for module in modules for one in module.state_dict().values()]


def main() -> None:
    top, here = Path(sys.argv[1]).resolve(), Path(__file__).resolve().parent
    for name in sys.argv[2:]:
        folder = top / name
        folder.mkdir(parents=True, exist_ok=True)
        with contextlib.chdir(folder), contextlib.redirect_stdout(io.StringIO()) as out:
            begin = time.perf_counter()
            try:
                left = runpy.run_path(str(here / f"{name}.py"), run_name="__main__")
                torch.save(weights(left), "weights.pt")
            except Exception:
                traceback.print_exc(file=out)
            Path("seconds.txt").write_text(str(time.perf_counter() - begin))
            modules, inputs = accounts()
            Path("modules.json").write_text(json.dumps(modules))
            Path("inputs.json").write_text(json.dumps(inputs))
        (folder / "out.txt").write_text(out.getvalue())


main()
