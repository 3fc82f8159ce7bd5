"""The profiler tutorial's ladder, climbed by one `flatout tune` and one `flatout run`, the script untouched.

The script is `ladder/train.py`: ResNet-18, 32x32 images resized by PIL, batch 32, SGD. Trainings follow each other in
rounds, every variant once a round; a ratio is taken within its round. The ceiling is the same loop over a batch that is
on the device already. Images a second are the last epoch's. Tuned is a training of 100 epochs, so that none ends while
two are compared; those that are timed are shorter. On a CUDA device: images of 224, eager and compiled, and
two more recipes: one in which results may differ, one in which the batch may grow, too. Without: smaller ones, where
the network takes nearly all of the step and no input can give much. What is known so far is in FILE at any time.

    python benchmarks/ladder.py [--quick] [--rounds N] [--budget S] [--recipes R ...] [--only FIX ...] [--out FILE]
"""

import argparse
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
from trainings import (
    PLAIN,
    Change,
    Trainings,
    equality,
    in_rounds,
    kept_names,
    note,
    ratio,
    ratios,
    run_command,
    table,
    tell,
    tune,
    verdict,
    where,
    write_variants,
)

from flatout.fixes.core.catalog import find_fix
from flatout.schema.trial import Equivalence

SCRIPT = Path(__file__).resolve().parent / "ladder" / "train.py"
SIZES = "IMAGES, SIDE, EPOCHS = 9984, 224, 4"
SMALL = {True: "IMAGES, SIDE, EPOCHS = 320, 48, 3", False: "IMAGES, SIDE, EPOCHS = 1024, 64, 3"}  # on a CPU; quick
QUICK = "IMAGES, SIDE, EPOCHS = 4992, 224, 3"

LONG = "100"  # epochs of a training that is tuned

LOADER = "loader = DataLoader(dataset, batch_size=32, shuffle=True)"
MODEL = "model = models.resnet18(num_classes=10).to(device)"
RESIDENT = (LOADER, f"{LOADER}\n    loader = [[part.to(device) for part in next(iter(loader))]] * len(loader)")
COMPILE = (MODEL, f"{MODEL}\n    model.compile()")
WORKERS = (LOADER, LOADER.replace("shuffle=True", "shuffle=True, num_workers=4, pin_memory=True"))

CEILING, COMPILED, COMPILED_CEILING = "resident batch", "compiled by hand", "resident batch, compiled by hand"
BITWISE, COMPILED_RUN = "flatout run, BITWISE", "flatout run of the compiled, BITWISE"
PRECISION, LARGER = "flatout run, PRECISION", "flatout run, larger batch"
SHARE, START = 0.93, 10.0  # of the ceiling; times the untouched script
H200 = 17_700  # images a second
PAIRS = ((BITWISE, CEILING), (COMPILED_RUN, COMPILED_CEILING))
RECIPES = {"bitwise": BITWISE, "compiled": COMPILED_RUN, "precision": PRECISION, "larger": LARGER}


def script_text(cuda: bool, quick: bool) -> str:
    text = SCRIPT.read_text(encoding="utf-8")
    if SIZES not in text:
        raise SystemExit(f"{SCRIPT} has no line {SIZES!r} any more")
    if cuda:
        return text.replace(SIZES, QUICK) if quick else text
    return text.replace(SIZES, SMALL[quick])


def variants_by_hand(cuda: bool, recipes: Sequence[str]) -> dict[str, tuple[Change, ...]]:
    found: dict[str, tuple[Change, ...]] = {CEILING: (RESIDENT,)}
    if cuda:
        found |= {"4 workers, pinned": (WORKERS,)}
    if COMPILED_RUN in recipes:
        found |= {COMPILED: (COMPILE,), COMPILED_CEILING: (RESIDENT, COMPILE)}
    return found


def verdicts(variants: dict[str, Trainings], kept: set[str]) -> list[str]:
    """Return one line for each goal: reached or missed."""
    lines = []
    for name, ceiling in PAIRS:
        if name in kept:
            share = ratio(variants[name].rates, variants[ceiling].rates)
            said = f"{share:.0%}, {verdict(share >= SHARE)}"
            lines.append(f"goal, {name}, last epoch: >= {SHARE:.0%} of the ceiling ({ceiling}): {said}")
    again = equality(variants[PLAIN], variants[PLAIN])
    for name, plain in ((BITWISE, PLAIN), (COMPILED_RUN, COMPILED)):
        if name in variants:
            same = equality(variants[name], variants[plain])
            lines.append(f"{name}: {same}; plain trainings among themselves: {again}")
    lines += [
        f"{name}: {ratios(variants[name].rates, variants[PLAIN].rates).strip()} the untouched script's rate, last epoch"
        for name in (PRECISION, LARGER)
        if name in variants
    ]
    if LARGER in variants:
        gain, rate = ratio(variants[LARGER].rates, variants[PLAIN].rates), statistics.median(variants[LARGER].rates)
        lines.append(f"goal, {LARGER}: >= {START}x: {gain:.2f}x, {verdict(gain >= START)}")
        lines.append(f"goal on an H200, {LARGER}: >= {H200:,} images/s: {rate:,.0f}, {verdict(rate >= H200)}")
    return lines


def main() -> None:
    """Tune, train in rounds, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer images, one round, shorter tunes")
    parser.add_argument("--rounds", type=int, help="trainings of each variant, 3 where none is given")
    parser.add_argument("--budget", help="of each tune")
    parser.add_argument("--recipes", nargs="*", choices=RECIPES, help="which to make; all where none is named")
    parser.add_argument("--only", nargs="*", default=(), help="what the tunes may try, if their class allows; else all")
    parser.add_argument("--out", type=Path, help="write the text here, too")
    options = parser.parse_args()
    cuda, quick = torch.cuda.is_available(), options.quick
    rounds, budget = options.rounds or (1 if quick else 3), options.budget or ("2m" if quick else "6m")
    text = script_text(cuda, quick)
    asked = [RECIPES[each] for each in options.recipes or RECIPES] if cuda else [BITWISE]
    sizes = next(line for line in text.splitlines() if line.startswith("IMAGES"))
    lines = [where(f"ladder, {sizes}", rounds, torch.cuda.get_device_name() if cuda else "")]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        by_hand = variants_by_hand(cuda, asked)
        commands = write_variants(text, folder, by_hand)
        kept: set[str] = set()
        wanted = {
            BITWISE: ("bitwise", "train.py", ""),
            COMPILED_RUN: ("bitwise", commands.get(COMPILED, [""])[-1], ""),
            PRECISION: ("precision", "train.py", ""),
            LARGER: ("precision", "train.py", "larger-batch"),
        }
        for name in asked:
            equal, script, also = wanted[name]
            weakest = Equivalence(equal.upper()).rank
            only = [each for each in options.only if find_fix(each).equivalence.rank <= weakest]
            said, fixes = tune(folder, equal, budget, script, also, only, [LONG])
            lines += [said, f"{name} keeps {kept_names(fixes)}"]
            note(lines, options.out)
            kept |= {name} if fixes else set()
            commands[name] = run_command(folder, equal, script, also)
        variants: dict[str, Trainings] = {}
        for number in range(rounds):
            variants = in_rounds(commands, folder, 1, into=variants)
            note([*lines, f"after {number + 1} rounds:", *table(variants, [*by_hand, COMPILED_RUN])], options.out)
        lines += table(variants, [*by_hand, COMPILED_RUN])
        lines += verdicts(variants, kept)
    tell(lines, options.out)


if __name__ == "__main__":
    main()
