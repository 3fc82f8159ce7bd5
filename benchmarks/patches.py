"""How much of a recipe `flatout patch` writes into the scripts of this folder, and whether they still train the same.

For every script and every fix that it has something for (a DataLoader, one of torch's optimizers, a convolution, ...)
the fix alone is written into its source: the share that can be written, the lines that change, and whether writing it
twice changes anything. Then 34 of the scripts are run for some optimizer steps, as they are and with the fixes of one
class written together: BITWISE ones have to give the same weights after every step, to the last bit; for the others it
is shown how far the weights are apart after one step, which is held to a limit, and at most. Fixes for CUDA are written
all the same, and their scripts run without one. Planted causes that `flatout patch --findings` has an edit for are
cured at their marked lines, and have to give the same weights, too. Whether a patched script is as fast as under its
recipe is measured by patch_speed.py.

    python benchmarks/patches.py [--quick | --all] [--only SCRIPT] [--steps N] [--out FILE]
"""

import argparse
import ast
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

import torch
from planted_suite import read_truth

from flatout.edits.finding_cures import write_findings_in
from flatout.schema.facts import Frame
from flatout.schema.finding import Finding
from flatout.schema.phase import Phase

HERE = Path(__file__).resolve().parent
FOLDERS = ("honest", "planted/flawed", "planted/healthy", "cpu_resnet", "ladder", "mnist_guide", "checkpoints")
QUICK = (
    *("accumulation", "autoencoder", "cnn_batchnorm", "input_crops", "mlp", "schedule_plateau", "two_loaders"),
    *("confusion_digits", "intent_classifier", "leaf_disease", "single_process_images", "workers_long_epochs"),
)
NO_TRAINING = ("checkpoints", "cpu_resnet", "mnist_guide", "ladder")  # need arguments or data: written, not run
SETTINGS = {
    "loader-workers": {"workers": 2, "persistent": True},
    "core-split": {"workers": 1, "threads": 1, "persistent": True},
    "cpu-threads": {"threads": 2},
    "compiled-module": {"mode": "default"},
    "fused-optimizer": {"implementation": "fused"},
    "cached-input": {"folder": ".kept"},
}
NEEDS = {  # what a script has to hold for a fix to have something to do
    **dict.fromkeys(("loader-workers", "core-split", "compiled-input", "cached-input"), r"\bDataLoader\("),
    "worker-threads": r"num_workers=[1-9]",
    "persistent-workers": r"num_workers=[1-9]",
    "pinned-copy": r"(?s)\bDataLoader\(.*(\.to\(\w*device|\.cuda\()",
    "fused-optimizer": r"optim\.(SGD|AdamW?|Adagrad)\(",
    "anomaly-off": "detect_anomaly",
    "channels-last": r"Conv(Transpose)?2d\(",
    "cudnn-search": r"Conv\w*\(",
    "compiled-module": r"backward\(",
    "bf16-autocast": r"backward\(",
    **dict.fromkeys(("cpu-threads", "denormals", "tf32", "allocator", "gc-control"), ""),
}
TOGETHER = {
    "BITWISE": ("loader-workers", "pinned-copy", "allocator", "anomaly-off"),
    "BITWISE, input compiled": ("compiled-input",),
    "ROUNDING": ("cpu-threads", "fused-optimizer", "worker-threads"),
    "ROUNDING, channels-last": ("channels-last",),
    "PRECISION": ("bf16-autocast", "denormals"),
}
# Of the size of all weights, after one step. Adam makes a whole step of a gradient that is nothing but rounding, as
# that of a bias before a normalization is: hence no 1e-6 for ROUNDING.
LIMITS = {"BITWISE": 0.0, "ROUNDING": 1e-3, "PRECISION": 1e-2}
CLOCK = """
import os, sys
starts = "flatout" in sys.orig_argv  # not the training, but what starts it
out, most = None if starts else os.environ.pop("PATCHES_OUT", None), int(os.environ.get("PATCHES_STEPS", "0"))
if out:
    import random, torch
    from torch.optim.optimizer import register_optimizer_step_post_hook
    torch.manual_seed(0)
    random.seed(0)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(0)
    seen, pid = [], os.getpid()
    def stepped(optimizer, *_):
        if os.getpid() == pid:
            seen.append([each.detach().clone() for group in optimizer.param_groups for each in group["params"]])
            if len(seen) == most:
                raise SystemExit(0)
    register_optimizer_step_post_hook(stepped)
    import atexit
    atexit.register(lambda: os.getpid() == pid and torch.save(seen, out))
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="run twelve of the scripts; write into all of them")
    parser.add_argument("--all", action="store_true", help="run all of them that train by themselves")
    parser.add_argument("--only", action="append", default=[], help="scripts of this name")
    parser.add_argument("--steps", type=int, default=60, help="optimizer steps of a run")
    parser.add_argument("--out", type=Path, help="write the table here, too")
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    start = time.monotonic()
    found = [each for each in scripts() if not options.only or each[0] in options.only]
    lines, twice = written(found)
    print("\n".join(lines), flush=True)
    faults = twice
    lines.append("")
    for line, fault in cures(options.steps) if not options.only else ():
        lines.append(line)
        faults += fault
        print(line, flush=True)
    lines.append("")
    for name, entry, root in found:
        if not (options.all or name in options.only or is_run(name, entry, quick=options.quick)):
            continue
        if entry.parent.name in NO_TRAINING:
            continue
        for line, fault in runs(name, entry, root, options.steps):
            lines.append(line)
            faults += fault
            print(line, flush=True)
    where = (
        f"Python {platform.python_version()}, torch {version('torch')}, {platform.machine()}, {os.cpu_count()} cores"
    )
    lines.append(f"{len(found)} scripts, {time.monotonic() - start:.0f} s, {where}; faults: {faults}")
    print(lines[-1])
    if options.out:
        options.out.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 1 if faults else 0


def is_run(name, entry, *, quick):
    """Return whether a script is run: twelve, or besides them all of honest.py's."""
    return name in QUICK or (entry.parent.name == "honest" and not quick)


def scripts():
    """Yield name, the file that is started, and the folder that its own modules lie in."""
    for folder in FOLDERS:
        for path in sorted((HERE / folder).iterdir()):
            if path.suffix == ".py":
                yield path.stem if path.stem != "train" else folder, path, path.parent
            elif (path / "train.py").exists():
                yield path.name, path / "train.py", path
            elif (path / "__main__.py").exists():
                yield path.name, path / "__main__.py", path.parent


# -- writing ----------------------------------------------------------------------------------------------------------


def patched(entry, root, names, recorded=(), step_s=0.0):
    """Return the project before and after, what became of each fix, and the project after it was patched once more.

    `recorded`, `step_s`: what a recording knows of the loaders and the steps; `flatout patch` has one after a tune.
    """
    from flatout.edits.reading.project import read_project
    from flatout.edits.recipe_edits import write_recipe_in
    from flatout.schema.trial import Selection

    project = read_project(entry, root, root)
    selections = [Selection(name, SETTINGS.get(name, {})) for name in names]
    after, outcomes = write_recipe_in(project, selections, recorded, step_s)
    return project, after, outcomes, write_recipe_in(after, selections)[0]


def written(found):
    """Return the table of what can be written, and how often a second time changed something."""
    from flatout.fixes.core.catalog import find_fix

    lines = [f"{'fix':20} {'class':10} {'scripts':>7} {'written':>7} {'there':>6} {'left':>5}  {'lines':>5} (median)"]
    twice = total = expressed = 0
    for fix, needs in sorted(NEEDS.items()):
        counts, sizes = {"changed": 0, "there": 0, "left": 0}, []
        for _, entry, root in found:
            if not re.search(needs, source_of(entry, root)):
                continue
            before, after, (outcome,), again = patched(entry, root, [fix])
            counts["changed" if outcome.changed else "there" if outcome.there else "left"] += 1
            twice += [each.code for each in after.sources] != [each.code for each in again.sources]
            for each in after.sources:
                ast.parse(each.code)
            if outcome.changed:
                sizes.append(num_changed(before, after))
        num = sum(counts.values())
        total, expressed = total + num, expressed + counts["changed"] + counts["there"]
        size = f"{statistics.median(sizes):5.0f}" if sizes else "    -"
        claimed = find_fix(fix).equivalence.value
        row = " ".join(f"{counts[name]:>{width}}" for name, width in (("changed", 7), ("there", 6), ("left", 5)))
        lines.append(f"{fix:20} {claimed:10} {num:7} {row}  {size}")
    lines.append(f"{expressed} of {total} pairs of script and fix are in the source; a second time changed {twice}")
    return lines, twice


def source_of(entry, root):
    from flatout.edits.reading.project import read_project

    return "\n".join(source.code.decode() for source in read_project(entry, root, root).sources)


def num_changed(before, after):
    """Return the lines that a diff adds or changes."""
    from flatout.edits.diff import unified_diff

    diffs = [unified_diff(old.code, new.code, "f") for old, new in zip(before.sources, after.sources, strict=True)]
    lines = [line for diff in diffs for line in diff.splitlines()]
    return sum(line.startswith(b"+") and not line.startswith(b"+++") for line in lines)


# -- running ----------------------------------------------------------------------------------------------------------


def runs(name, entry, root, steps):
    """Yield a line, and whether it is a fault, for the plain script and for each class of fixes written into it."""
    with tempfile.TemporaryDirectory(prefix="patches-") as top:
        untouched = patched(entry, root, ())[1]
        plain, said = trained(Path(top) / "plain", entry, root, untouched, steps)
        again, _ = trained(Path(top) / "again", entry, root, untouched, steps)
        if not plain:
            yield f"{name:22} plain                    does not train here: {said}", False
            return
        same = again is not None and len(again) == len(plain) and differs(plain, again) == (0, 0)
        for kind, names in TOGETHER.items():
            applied = [fix for fix in names if re.search(NEEDS[fix], source_of(entry, root))]
            _, after, outcomes, _ = patched(entry, root, applied)
            used = [outcome.label.split()[0] for outcome in outcomes if outcome.changed]
            if used:
                weights, said = trained(Path(top) / kind.replace(", ", "-"), entry, root, after, steps)
                told, fault = verdict(plain, weights, said, LIMITS[kind.partition(",")[0]] if same else 1.0)
                if fault and weights is not None and not kind.startswith("BITWISE"):
                    under, _ = trained(Path(top) / f"{kind} run", entry, root, untouched, steps, used)
                    apart, fault = verdict(plain, under, "no weights", LIMITS[kind.partition(",")[0]])
                    fault = under is None or not fault
                    told += f"; under the recipe {apart}"
                told += "" if same else " (not deterministic)"
                yield f"{name:22} {kind:24} {told}: {', '.join(used)}", fault


def cures(steps):
    """Yield a line, and whether it is a fault, for every planted cause that `flatout patch --findings` has an edit for.

    The finding names each line that is marked for it in turn, until one can be changed: a diagnosis names one of them.
    """
    from flatout.edits.finding_cures import edits_for

    for script in read_truth():
        for cause in script.causes:
            sure = (each for each in cause.codes if any(not edit.needs_trial for edit, _ in edits_for(each)))
            code = next(sure, None)
            if code is None:
                continue
            entry = script.files(script.home)[0] if not script.package else script.home / script.name
            entry = entry if entry.suffix == ".py" else entry / "__main__.py"
            entry = entry if entry.name != "__init__.py" else entry.with_name("train.py")
            yield cure(script, code, sorted(script.marked_lines(cause)), entry, steps)


def cure(script, code, marked, entry, steps):
    """Return the line of one planted cause."""
    root = entry.parent.parent if script.package else entry.parent
    before = patched(entry, root, ())[0]
    after, outcome = before, None
    for path, line in marked:
        finding = Finding(
            code=code,
            name="",
            phase=Phase.HOST,
            share=0.1,
            max_speedup=1.1,
            message="",
            location=Frame(str(path), line, ""),
        )
        after, (outcome,) = write_findings_in(before, [finding], recorded=before)
        if outcome.changed:
            break
    if outcome is None or not outcome.changed:
        return (
            f"{script.name:22} {code} left: {outcome.left[0] if outcome and outcome.left else 'no line is marked'}",
            False,
        )
    with tempfile.TemporaryDirectory(prefix="patches-") as top:
        plain, said = trained(Path(top) / "plain", entry, root, before, steps)
        if not plain:
            return f"{script.name:22} {code} does not train here: {said}", False
        weights, said = trained(Path(top) / "cured", entry, root, after, steps)
        told, fault = verdict(plain, weights, said, 0.0)
        return f"{script.name:22} {code} written in {num_changed(before, after)} lines: {told}", fault


def verdict(plain, weights, said, limit):
    """Return what to say of two trainings, and whether they are further apart after one step than the class allows."""
    if weights is None or len(weights) != len(plain):
        return said or f"{len(weights)} steps, not {len(plain)}", True
    first, most = differs(plain, weights)
    if most == 0:
        return f"the same bits in {len(plain)} steps", False
    return f"{first:.0e} apart after a step, {most:.0e} at most in {len(plain)}", first > limit or not limit


def trained(folder, entry, root, project, steps, fixes=()):
    """Run a script as it is in `project`, in a folder of its own; return its weights after each step, or its words.

    `fixes`: under a recipe of these.
    """
    for source in project.sources:
        place = folder / source.path.relative_to(root.resolve())
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(source.code)
    for path in root.rglob("*.py"):  # what is not imported by name: package marks
        place = folder / path.relative_to(root)
        if path.parent != HERE / "honest" and path.name == "__init__.py" and not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(path.read_bytes())
    inject = folder.with_name(folder.name + "-inject")
    inject.mkdir()
    (inject / "sitecustomize.py").write_text(CLOCK)
    paths = [str(inject), str(HERE.parent / "src"), str(folder)]
    variables = {
        "PYTHONPATH": os.pathsep.join(paths),
        "PATCHES_OUT": str(inject / "seen.pt"),
        "PATCHES_STEPS": str(steps),
    }
    package = entry.name == "__main__.py"
    start = ["-m", entry.parent.name] if package else [str(folder / entry.relative_to(root))]
    if fixes:
        start = ["-m", "flatout", "run", "--recipe", str(recipe_of(inject, start[-1], fixes)), *start]
    try:
        done = subprocess.run(
            [sys.executable, *start],
            cwd=folder,
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            timeout=240,
        )
    except subprocess.TimeoutExpired:
        return None, "takes longer than 240 s"
    if done.returncode:
        return None, (done.stderr.strip().splitlines() or ["no word"])[-1][:100]
    return torch.load(inject / "seen.pt", weights_only=True), ""


def recipe_of(folder, script, fixes):
    """Write a recipe of these fixes, return its file."""
    from flatout.engine.recipe import RECIPE_FILE, write_recipe
    from flatout.fixes.core.catalog import find_fix
    from flatout.schema.recipe import Kept, Proof, Recipe
    from flatout.schema.trial import Selection

    chosen = [Selection(name, SETTINGS.get(name, {})) for name in fixes]
    kept = tuple(Kept(selection=each, equivalence=find_fix(each.fix).equivalence) for each in chosen)
    proof = Proof(date="", flatout="", python="", torch="", device="")
    write_recipe(Recipe(script=Path(script).name, fixes=kept, proof=proof), folder / RECIPE_FILE)
    return folder / RECIPE_FILE


def differs(plain, other):
    """Return by which share of their size the weights differ after the first step and at most; 0, 0: the same bits."""
    gaps = [gap(left, right) for left, right in zip(plain, other, strict=True)]
    return gaps[0], max(gaps)


def gap(left, right):
    if all(torch.equal(one, two) for one, two in zip(left, right, strict=True)):
        return 0.0
    apart = sum(float((one.double() - two.double()).square().sum()) for one, two in zip(left, right, strict=True))
    return (apart / sum(float(one.double().square().sum()) for one in left)) ** 0.5


if __name__ == "__main__":
    sys.exit(main())
