"""The classic MNIST guide's script, untouched: `flatout tune`, then whole trainings by hand and under `flatout run`.

The script is `mnist_guide/train.py`, copied as a user's file beside generated files in MNIST's own format. (It starts
with a few lines that let torchvision load beside a CPU build of torch, which every CPU-only user needs.) Trainings
follow each other in rounds, every variant once a round; a ratio is taken within its round, on the time from the first
step to the last. Resident batches are the ceiling for anything that changes the input only: the same loop over a batch
that is there already. Losses and weights are compared with the first plain training, to the last bit.

    python benchmarks/mnist_guide.py [--quick] [--rounds N] [--budget S] [--out FILE]
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from trainings import (
    PLAIN,
    Trainings,
    equality,
    in_rounds,
    kept_names,
    ratio,
    run_command,
    table,
    tell,
    tune,
    verdict,
    where,
    write_variants,
)

SCRIPT = Path(__file__).resolve().parent / "mnist_guide" / "train.py"
BITWISE, ROUNDING = "flatout run, BITWISE", "flatout run, ROUNDING"
CEILING = "resident batch"
GOALS = {BITWISE: 5.5, ROUNDING: 7.5}
SHARE = 0.93

LOADER = "loader = DataLoader(dataset, batch_size=64, shuffle=True)"
ADAM = "optim.Adam(model.parameters(), lr=1e-3)"
RESIDENT = (LOADER, f"{LOADER}\n    loader = [next(iter(loader))] * len(loader)")
KEPT = (LOADER, f"{LOADER}\n    loader = list(loader)")
GATHERED = (
    LOADER,
    """pixels = dataset.data.unsqueeze(1).float().div_(255).sub_(0.1307).div_(0.3081)

    class Loader:
        def __len__(self):
            return -(-len(pixels) // 64)

        def __iter__(self):
            for rows in torch.randperm(len(pixels)).split(64):
                yield pixels.index_select(0, rows), dataset.targets.index_select(0, rows)

    loader = Loader()""",
)
FUSED = (ADAM, "optim.Adam(model.parameters(), lr=1e-3, fused=True)")
THREAD = ("torch.manual_seed(1)", "torch.manual_seed(1)\n    torch.set_num_threads(1)")
WORKERS = (LOADER, LOADER.replace("shuffle=True", "shuffle=True, num_workers=2, persistent_workers=True"))
BY_HAND = {
    CEILING: (RESIDENT,),
    "first pass's batches kept": (KEPT,),
    "2 workers": (WORKERS,),
    "gather of prepared images": (GATHERED,),
    "resident batch, fused Adam": (RESIDENT, FUSED),
    "resident batch, fused Adam, 1 thread": (RESIDENT, FUSED, THREAD),
}


def write_mnist(folder: Path, number: int) -> None:
    """Write `number` images that can be learned, in the idx format that torchvision's MNIST reads."""
    draw = np.random.RandomState(0)
    patterns = draw.randint(0, 200, (10, 28, 28))
    raw = folder / "data" / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for name, length in (("train", number), ("t10k", 64)):
        labels = draw.randint(0, 10, length).astype(np.uint8)
        noise = draw.randint(-120, 121, (length, 28, 28))
        images = (patterns[labels] + noise).clip(0, 255).astype(np.uint8)
        for kind, array in (("images-idx3", images), ("labels-idx1", labels)):
            sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
            (raw / f"{name}-{kind}-ubyte").write_bytes(bytes([0, 0, 8, array.ndim]) + sizes + array.tobytes())


def verdicts(variants: dict[str, Trainings], kept: dict[str, list[dict[str, Any]]]) -> list[str]:
    """Return one line for each goal: reached or missed."""

    plain, ceiling = variants[PLAIN], variants[CEILING]
    lines = []
    for name, goal in GOALS.items():
        lines.append(f"{name} keeps {kept_names(kept[name])}")
        gain = ratio(plain.steps_s, variants[name].steps_s)
        lines.append(f"goal, {name}: >= {goal}x: {gain:.2f}x, {verdict(bool(kept[name]) and gain >= goal)}")
    if not kept[BITWISE]:
        return lines
    share = ratio(ceiling.steps_s, variants[BITWISE].steps_s)
    lines.append(f"goal, {BITWISE}: >= {SHARE:.0%} of the ceiling ({CEILING}): {share:.0%}, {verdict(share >= SHARE)}")
    same = equality(variants[BITWISE], plain)
    lines.append(f"goal, {BITWISE}: same losses and weights: {same}, {verdict('the same' in same)}")
    return lines


def main() -> None:
    """Tune for both classes of equality, train in rounds, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="12,000 images, one round, 2 minutes a tune")
    parser.add_argument("--rounds", type=int, help="trainings of each variant, 5 where none is given")
    parser.add_argument("--budget", help="of each of the two tunes, 5m where none is given")
    parser.add_argument("--out", type=Path, help="write the text here, too")
    options = parser.parse_args()
    rounds = options.rounds or (1 if options.quick else 5)
    number = 12_000 if options.quick else 60_000
    lines = [where(f"MNIST guide, {number:,} images, 5 epochs", rounds)]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_mnist(folder, number)
        commands, kept = write_variants(SCRIPT.read_text(encoding="utf-8"), folder, BY_HAND), {}
        for name in (BITWISE, ROUNDING):
            equal = name.rsplit(" ", 1)[1].lower()
            said, kept[name] = tune(folder, equal, options.budget or ("2m" if options.quick else "5m"))
            lines += [said]
            commands[name] = run_command(folder, equal)
        variants = in_rounds(commands, folder, rounds, "mnist.pt")
        lines += [*table(variants, list(BY_HAND)), *verdicts(variants, kept)]
    tell(lines, options.out)


if __name__ == "__main__":
    main()
