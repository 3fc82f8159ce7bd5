"""Fixes that leave out work that is done again, tuned and run on scripts as people write them.

Modules: flatout.fixes.kept_calls, flatout.fixes.kept_outputs.
"""

import json
import os
import re
import subprocess
import sys
import tomllib

import pytest

from flatout.engine.recipe import RECIPE_FILE, write_recipe
from flatout.fixes.core.catalog import find_fix
from flatout.schema.recipe import Kept, Proof, Recipe
from flatout.schema.trial import Equivalence, Selection

pytestmark = [pytest.mark.alone, pytest.mark.slow]
PROOF = Proof(date="2026-11-29", flatout="0.1.0", python="", torch="", device="")

TABLE = """
import math
import os

import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)


def table(size, width):
    return torch.tensor([[math.sin(i / 10000 ** (j / width)) for j in range(width)] for i in range(size)])


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.last = torch.nn.Linear(64, 1)

    def forward(self, x):
        return self.last(x + table(96, 64)).mean(1)


def main():
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    data = DataLoader(TensorDataset(torch.randn(64, 96, 64), torch.randn(64, 1)), batch_size=8, shuffle=True)
    for epoch in range(int(os.environ.get("EPOCHS", "100000"))):
        for x, y in data:
            loss = torch.nn.functional.mse_loss(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    print(f"{loss.item():.9f}")


if __name__ == "__main__":
    main()
"""

ENCODER = """
import os

import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)


class Encoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Conv2d(3, 32, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(32, 32, 3, padding=1)
        )

    def forward(self, x):
        return self.layers(x).mean((2, 3))


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.head = Encoder(), torch.nn.Linear(32, 4)
        FREEZE

    def forward(self, x):
        return self.head(self.encoder(x))


def main():
    net = Net()
    optimizer = torch.optim.SGD(net.head.parameters(), lr=0.01)
    data = DataLoader(TensorDataset(torch.randn(96, 3, 32, 32), torch.randint(0, 4, (96,))), batch_size=8, shuffle=True)
    for epoch in range(int(os.environ.get("EPOCHS", "100000"))):
        for x, y in data:
            loss = torch.nn.functional.cross_entropy(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    print(f"{loss.item():.9f}")


if __name__ == "__main__":
    main()
"""
FEATURES = """
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)
features = nn.Sequential(nn.Linear(128, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 64)).eval()
for parameter in features.parameters():
    parameter.requires_grad_(False)
head = nn.Linear(64, 10)
optimizer = torch.optim.Adam(head.parameters(), 1e-3)
data = DataLoader(TensorDataset(torch.randn(256, 128), torch.randint(0, 10, (256,))), batch_size=32)
for epoch in range(int(os.environ.get("EPOCHS", "100000"))):
    for x, y in data:
        with torch.no_grad():
            seen = features(x)
        loss = nn.functional.cross_entropy(head(seen), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(f"{loss.item():.9f}")
"""

HEADS = """
import os

import torch

torch.manual_seed(0)
torch.set_num_threads(1)


def steering(sites, reach):
    gaps = (sites[:, :, None] - sites[:, None]).square().sum(-1).sqrt()
    order = gaps.argsort(-1)
    return torch.softmax(-gaps / reach, -1), order[..., 1:4]


class Head(torch.nn.Module):
    def __init__(self, reach):
        super().__init__()
        self.mix, self.reach = torch.nn.Linear(8, 8), reach

    def forward(self, x, sites):
        weights, order = steering(sites, 0.5)
        near = x.gather(1, order[..., :1].expand(-1, -1, x.shape[-1]))
        return torch.tanh(self.mix(weights @ x + near))


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.heads = torch.nn.ModuleList(Head(reach) for reach in range(1, 7))
        self.out = torch.nn.Linear(8, 1)

    def forward(self, x, sites):
        for head in self.heads:
            x = x + head(x, sites)
        return self.out(x).mean(1)


def main():
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    places, x, y = torch.rand(64, 90, 2), torch.randn(64, 90, 8), torch.randn(64, 1)
    for epoch in range(int(os.environ.get("EPOCHS", "100000"))):
        for rows in torch.randperm(64).split(8):
            sites = places[rows] + 0.01 * torch.randn(8, 90, 2)
            loss = torch.nn.functional.mse_loss(net(x[rows], sites), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    print(f"{loss.item():.9f}")


if __name__ == "__main__":
    main()
"""

SCRIPTS = {
    "kept-calls": ("CO019", TABLE),
    "kept-calls of what each head asks for": ("CO036", HEADS),
    "kept-outputs": ("CO030", ENCODER.replace("FREEZE", "self.encoder.requires_grad_(False).eval()")),
    "kept-outputs of a module of torch's own": ("CO030", FEATURES),
}


EPOCHS = "12"


@pytest.fixture
def project(flatout):
    flatout.environment |= {"OMP_NUM_THREADS": "1"}
    return flatout


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_finding_names_its_fix_and_a_training_under_it_comes_out_the_same(project, name):
    (code, script), fix = SCRIPTS[name], name.partition(" ")[0]
    project.write(script)
    ended = project.diagnose("--json", "report.json", "train.py", steps=40)
    assert ended.code == 0, ended.err
    report = json.loads((project.folder / "report.json").read_text())
    (finding,) = [one for one in report["findings"] if one["code"] == code]
    assert fix in finding["fixes"]
    (settings,) = find_fix(fix).choices(ended.run)
    kept = Kept(selection=Selection(fix, settings), equivalence=Equivalence.BITWISE)
    write_recipe(Recipe(script="train.py", fixes=(kept,), proof=PROOF), project.folder / RECIPE_FILE)
    told = dict(os.environ, EPOCHS=EPOCHS, OMP_NUM_THREADS="1")
    plain = subprocess.run([sys.executable, "train.py"], cwd=project.folder, env=told, capture_output=True, check=True)
    ended = project("run", "train.py", EPOCHS=EPOCHS)
    assert (ended.code, ended.out) == (0, plain.stdout.decode()), ended.err
    assert re.search(rf"^flatout: {fix}.*: .* [1-9]\d*$", ended.err, re.MULTILINE), ended.err


@pytest.mark.full
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_trial_finds_the_results_equal(project, name):
    fix = name.partition(" ")[0]
    project.write(SCRIPTS[name][1])
    process = project.start("tune", "--budget", "150s", "--only", fix, "--json", "report.json", "train.py")
    ended = project.wait(process, timeout=300)
    assert ended.code == 0, ended.err
    report = json.loads((project.folder / "report.json").read_text())
    (trial,) = report["trials"]
    assert trial["fix"] == fix
    assert trial["verdict"] in ("KEPT", "UNDECIDED"), trial  # how fast it is, a busy machine does not tell
    if trial["verdict"] == "KEPT":
        (kept,) = tomllib.loads((project.folder / RECIPE_FILE).read_text())["fix"]
        assert (kept["name"], trial["results_equal"]) == (fix, True)
