"""Hot numeric Python on real trainings: offered and kept by `tune`, compiled under `run`, written by `patch`.

Modules: flatout.fixes.compiled_python, flatout.numeric.served.
"""

import json
import re
import tomllib

import pytest

from flatout.engine.recipe import RECIPE_FILE, write_recipe
from flatout.schema.recipe import Kept, Proof, Recipe
from flatout.schema.trial import Equivalence, Selection
from tests.e2e.support import picture

pytest.importorskip("numba")

PROOF = Proof(date="2026-11-29", flatout="0.1.0", python="", torch="", device="")
PIXELS = """
import sys
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Linear(32 * 32, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


class Photos(Dataset):
    def __init__(self):
        self.images = np.random.default_rng(0).integers(0, 255, (512, 32, 32), dtype=np.uint8)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        image = self.images[index]
        flip = torch.rand(()) > 0.5
        out = np.zeros(image.shape, dtype=np.float32)
        for y in range(image.shape[0]):
            for x in range(image.shape[1]):
                value = float(image[y, x]) / 255.0
                out[y, x] = value * value if value > 0.5 else value * 0.25
        out = torch.from_numpy(out).flatten()
        return out.flip(0) if flip else out, index % 4


def main(steps):
    loader, done = DataLoader(Photos(), batch_size=8, shuffle=True, num_workers=WORKERS), 0
    while True:
        for x, y in loader:
            loss = torch.nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            done += 1
            if done >= steps:
                print(f"{loss.item()!r} {model.weight.sum().item()!r}")
                return


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
"""
DISTANCES = """
import sys
import torch

torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Linear(8, 30 * 6)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def edit_distance(ref, hyp):
    row = list(range(len(hyp) + 1))
    for i, r in enumerate(ref, 1):
        previous, row[0] = row[0], i
        for j, h in enumerate(hyp, 1):
            current = row[j]
            row[j] = min(row[j] + 1, row[j - 1] + 1, previous + (r != h))
            previous = current
    return row[-1]


def main(steps):
    errors = 0
    for _ in range(steps):
        x, y = torch.randn(8, 8), torch.randint(0, 6, (8, 30))
        out = model(x).view(8, 30, 6)
        loss = torch.nn.functional.cross_entropy(out.flatten(0, 1), y.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        for ref, hyp in zip(y.tolist(), out.argmax(2).tolist()):
            errors += edit_distance(ref, hyp)
    print(f"{errors} {loss.item()!r}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
"""


def recipe(project, functions):
    kept = Kept(selection=Selection("compiled-python", {"functions": functions}), equivalence=Equivalence.BITWISE)
    write_recipe(Recipe(script="train.py", fixes=(kept,), proof=PROOF), project.folder / RECIPE_FILE)


def tuned(project):
    process = project.start(
        "tune", "--only", "compiled-python", "--budget", "150s", "--json", "report.json", "train.py"
    )
    ended = project.wait(process, timeout=290)
    assert ended.code == 0, ended.err
    return json.loads((project.folder / "report.json").read_text())


@pytest.mark.parametrize(
    ("script", "functions"),
    [
        (PIXELS.replace("WORKERS", "0"), "train.py:Photos.__getitem__"),
        (PIXELS.replace("WORKERS", "2"), "train.py:Photos.__getitem__"),
        (DISTANCES, "train.py:edit_distance"),
    ],
    ids=["pixels", "pixels in workers", "edit distance"],
)
def test_a_training_comes_out_as_plain_and_what_is_compiled_is_told(flatout, script, functions):
    flatout.write(script)
    recipe(flatout, functions)
    before = picture(flatout.folder)
    ended = flatout("run", "train.py", "60")
    assert ended.code == 0, ended.err
    assert re.search(r"compiled-python .*: .*(edit_distance|__getitem__ \(line \d+\)|in workers) \d+", ended.err), (
        ended.err
    )
    (flatout.folder / RECIPE_FILE).unlink()
    write_recipe(Recipe(script="train.py", fixes=(), proof=PROOF), flatout.folder / RECIPE_FILE)
    assert ended.out == flatout("run", "train.py", "60").out
    assert {name: facts for name, facts in picture(flatout.folder).items() if name != RECIPE_FILE} == {
        name: facts for name, facts in before.items() if name != RECIPE_FILE
    }


@pytest.mark.alone
@pytest.mark.parametrize("workers", ["0", pytest.param("2", marks=pytest.mark.full)])
def test_a_pixel_loop_of_a_data_set_is_kept_and_equal(flatout, workers):
    flatout.write(PIXELS.replace("WORKERS", workers))
    report = tuned(flatout)
    (trial,) = [each for each in report["trials"] if each["fix"] == "compiled-python"]
    assert (trial["verdict"], trial["equivalence"], trial["results_equal"]) == ("KEPT", "BITWISE", True), trial
    (fix,) = tomllib.loads((flatout.folder / RECIPE_FILE).read_text())["fix"]
    assert fix["settings"] == {"functions": "train.py:Photos.__getitem__"}


@pytest.mark.alone
def test_an_edit_distance_in_the_step_is_kept_run_and_written(flatout):
    path = flatout.write(DISTANCES)
    report = tuned(flatout)
    (trial,) = [each for each in report["trials"] if each["fix"] == "compiled-python"]
    assert (trial["verdict"], trial["equivalence"], trial["results_equal"]) == ("KEPT", "BITWISE", True), trial
    patched = flatout("patch", "--write", "train.py")
    assert patched.code == 0, patched.err
    assert "@flatout.compiled\ndef edit_distance" in path.read_text()
