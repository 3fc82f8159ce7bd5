"""Whether right fixes pass: every fix of the catalog on varied small training scripts (`honest/`).

Each fix is held to what it promises by the verifier that `flatout tune` uses. The fixes of a class are tried together
on a script, and one by one where they fail together. A BITWISE fix that is rejected is a fault, of the fix or of the
verifier; a fix of another class may be rejected where the script is more sensitive than the class allows.

    python benchmarks/honest.py [--quick] [--only SCRIPT] [--fix NAME] [--out FILE] [--numbers]
"""

import argparse
import os
import platform
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).resolve().parent
# What changes most is tried by itself, and what takes a loader over from others.
ALONE = ("compiled-module", "bf16-autocast", "compiled-input", "cached-input")
QUICK = ("mlp", "cnn_batchnorm", "transformer", "gan", "segmentation")
SETTINGS = {  # where a fix has settings; nothing is timed here, so what matters is that the fix acts
    "loader-workers": {"workers": 2, "persistent": True},
    "compiled-module": {"mode": "default"},
    "cpu-threads": {"threads": 2},
    "core-split": {"workers": 1, "threads": 1},
    "device-prefetch": {"kind": "cpu"},
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="five of the scripts")
    parser.add_argument("--only", action="append", default=[], help="scripts of this name")
    parser.add_argument("--fix", action="append", default=[], help="fixes of this name")
    parser.add_argument("--out", type=Path, help="write the table here, too")
    parser.add_argument("--numbers", action="store_true", help="show how close each check came to its limit")
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # other jobs of a shared machine make OpenMP regions wait
    wanted = options.only or (QUICK if options.quick else ())
    scripts = [path.stem for path in sorted((HERE / "honest").glob("*.py")) if not wanted or path.stem in wanted]
    lines = [f"{'script':18} {'fix':22} {'promises':10} {'verdict':12} reason"]
    print(lines[0], flush=True)
    faults = 0
    counts = {}
    start = time.monotonic()
    for script in scripts:
        for fix, claimed, verdict, reason, numbers in verdicts(script, options.fix):
            lines.append(f"{script:18} {fix:22} {claimed:10} {verdict:12} {reason}")
            counts[claimed, verdict] = counts.get((claimed, verdict), 0) + 1
            faults += claimed == "BITWISE" and verdict == "rejected"
            print(lines[-1], flush=True)
            for line in numbers if options.numbers else ():
                print(f"{'':18}   {line}", flush=True)
    lines.append("")
    for claimed, verdict in sorted(counts):
        lines.append(f"{claimed:10} {verdict:12} {counts[claimed, verdict]}")
    lines.append(f"{len(scripts)} scripts, {time.monotonic() - start:.0f} s; BITWISE fixes rejected: {faults}")
    where = f"torch {version('torch')}, {platform.machine()}, {os.cpu_count()} cores"
    lines.append(f"Python {platform.python_version()}, {where}")
    print("\n".join(lines[-len(counts) - 3 :]))
    if options.out:
        options.out.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 1 if faults else 0


def verdicts(script, only):
    """Yield fix, promised class, verdict, reason and the closest checks, for each fix on one script."""
    from flatout.engine.process.target import parse_target
    from flatout.engine.trial.verify import Verifier
    from flatout.fixes.core.catalog import fixes
    from flatout.schema.trial import Equivalence

    offered = [fix for fix in fixes() if not fix.on_request and (not only or fix.name in only)]
    with tempfile.TemporaryDirectory(prefix="honest-") as folder:
        verifier = Verifier(parse_target((str(HERE / "honest" / f"{script}.py"),)), Path(folder))

        for claimed in (Equivalence.BITWISE, Equivalence.ROUNDING, Equivalence.PRECISION):
            promised = [fix for fix in offered if fix.equivalence is claimed]
            alone = [fix for fix in promised if fix.name in ALONE]
            for group in ([fix for fix in promised if fix not in alone], *([fix] for fix in alone)):
                yield from tried(verifier, claimed, group)
        verifier.close()


def tried(verifier, claimed, group):
    """Try fixes together, and one by one where they fail together."""
    from flatout.schema.trial import Selection

    if not group:
        return
    equality = verifier.check([Selection(fix.name, SETTINGS.get(fix.name, {})) for fix in group], claimed)
    passed = bool(equality.checks) and all(check.passed for check in equality.checks)
    if len(group) > 1 and not passed:
        for fix in group:
            yield from tried(verifier, claimed, [fix])
        return
    for fix, record in zip(group, verifier.fixes or [{"hits": {}, "failure": ""}] * len(group), strict=False):
        verdict = {True: "equal", False: "rejected", None: "no verdict"}[equality.equal]
        if passed:
            verdict = "equal" if record["hits"] else "not applied"
        reason = "" if passed else equality.reason
        yield fix.name, claimed, verdict, reason or record["failure"] or spoken(record["hits"]), closest(equality)


def spoken(hits):
    return ", ".join(f"{name} {count}" for name, count in hits.items())[:80]


def closest(equality):
    """Return the checks with a limit that came closest to it."""
    measured = [check for check in equality.checks if check.limit]
    measured.sort(key=lambda check: -check.value / check.limit)
    return [f"{check.name}: {check.value:.2g} of {check.limit:.2g}" for check in measured[:6]]


if __name__ == "__main__":
    sys.exit(main())
