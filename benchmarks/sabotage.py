"""Whether wrong fixes and wrong edits of the source are found out: each case claims to leave results equal.

The fixes are in `sabotage/wrong_fixes.py`, the edits, given as `flatout tune --edit` is given them, in
`sabotage/wrong_edits.py`, faults in the prediction of random streams in `sabotage/wrong_predictions.py`. Every case is
run through the verifier that `flatout tune` uses, on the script of `honest/` or `sabotage/` that it names; it counts as
found when the verdict is "not equal" and the reason names what is wrong.

    python benchmarks/sabotage.py [--quick] [--only NAME] [--out FILE]
"""

import argparse
import os
import platform
import sys
import tempfile
import time
from importlib.metadata import version
from itertools import groupby
from pathlib import Path

HERE = Path(__file__).resolve().parent
QUICK = ("drops-one-sample", "raises-the-rate", "scales-the-gradients", "freezes-batchnorm", "switches-dropout-off")
QUICK += ("detaches-what-the-generator-made", "pads-with-a-token")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="seven of the cases")
    parser.add_argument("--only", action="append", default=[], help="cases of this name")
    parser.add_argument("--out", type=Path, help="write the table here, too")
    options = parser.parse_args()
    os.environ["FLATOUT_EXTRA_FIXES"] = "wrong_fixes,wrong_predictions"
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(HERE / "sabotage"), os.environ.get("PYTHONPATH")]))
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # other jobs of a shared machine make OpenMP regions wait
    sys.path.insert(0, str(HERE / "sabotage"))
    from wrong_edits import EDITS
    from wrong_fixes import CASES
    from wrong_predictions import PREDICTIONS

    wanted = options.only or (QUICK if options.quick else ())
    cases = [case for case in (*CASES, *EDITS, *PREDICTIONS) if not wanted or case.fix in wanted]
    cases.sort(key=lambda case: case.script)
    lines = [f"{'wrong fix':34} {'claims':10} {'on':14} {'verdict':10} reason"]
    print(lines[0], flush=True)
    found = 0
    start = time.monotonic()
    for script, group in groupby(cases, key=lambda case: case.script):
        for line, good in verdicts(script, list(group)):
            lines.append(line)
            found += good
            print(line, flush=True)
    took = f"{time.monotonic() - start:.0f} s"
    made = f"made by {len({case.fix for case in cases})} wrong fixes and edits"
    lines.append(f"{found} of {len(cases)} wrong claims found out and named, {made}, in {took}")
    where = f"torch {version('torch')}, {platform.machine()}, {os.cpu_count()} cores"
    lines.append(f"Python {platform.python_version()}, {where}")
    print(*lines[-2:], sep="\n")
    if options.out:
        options.out.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 0 if found == len(cases) else 1


def verdicts(script, cases):
    """Yield a line for each case on one script, and whether it was found out."""
    from flatout.engine.process.target import parse_target
    from flatout.engine.trial.verify import Verifier
    from flatout.schema.trial import Selection

    with tempfile.TemporaryDirectory(prefix="sabotage-") as folder:
        homes = (HERE / home / f"{script}.py" for home in ("honest", "sabotage"))
        verifier = Verifier(parse_target((str(next(filter(Path.exists, homes))),)), Path(folder))
        for case in cases:
            selection = getattr(case, "selection", None) or Selection(case.fix)
            equality = verifier.check((selection,), case.claimed)
            verdict = {True: "EQUAL", False: "rejected", None: "no verdict"}[equality.equal]
            named = case.named in equality.reason
            note = "" if named or equality.equal is not False else f"  [not named: {case.named}]"
            yield (
                f"{case.fix:34} {case.claimed:10} {script:14} {verdict:10} {equality.reason}{note}",
                equality.equal is False and named,
            )
        verifier.close()


if __name__ == "__main__":
    sys.exit(main())
