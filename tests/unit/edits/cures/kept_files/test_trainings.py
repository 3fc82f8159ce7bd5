"""Trainings of a data set that reads whole files, with workers and without: the same weights to the bit."""

import os
import subprocess
import sys
import time

import pytest
from tests.unit.edits.cures.kept_files.scripts import files
from tests.unit.edits.scripts import edited

TRAINING = """
import json, os, random, sys
import torch
from pathlib import Path
from torch import nn
from torch.utils.data import DataLoader, Dataset

CONTEXT = 8
CHARS = sorted("abcdefghijklmnopqrstuvwxyz .\\n")
stoi = {c: i for i, c in enumerate(CHARS)}


class Texts(Dataset):
    def __init__(self, folder):
        self.paths = sorted(Path(folder).glob("*.txt"))

    def __len__(self):
        return 48

    def __getitem__(self, index):
        path = self.paths[index % len(self.paths)]
        text = open(path).read()
        ids = [stoi[c] for c in text]  # <<
        start = random.randint(0, len(ids) - CONTEXT - 2)
        chunk = torch.tensor(ids[start:start + CONTEXT + 1])
        return chunk[:-1], chunk[1:]


def main(folder, workers):
    torch.manual_seed(3)
    random.seed(3)
    model = nn.Sequential(nn.Embedding(len(CHARS), 16), nn.Linear(16, len(CHARS)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    loader = DataLoader(Texts(folder), batch_size=8, shuffle=True, num_workers=workers,
                        multiprocessing_context="spawn" if workers else None)
    for _ in range(2):
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
            loss.backward()
            optimizer.step()
    return model


if __name__ == "__main__":
    model = main(sys.argv[1], int(sys.argv[2]))
    print(json.dumps([p.tolist() for p in model.parameters()]), random.random())
"""
HITS = """
    print(sum(each.cache_info().hits for name, each in [*globals().items()] if name == "_read_ids"), file=sys.stderr)
"""


@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_two_epochs_give_the_same_weights(tmp_path, workers):
    after, left = edited(tmp_path, "kept-files", TRAINING)
    assert left == ""
    for path in files(tmp_path):
        old = time.time() - 100
        os.utime(path, (old, old))
    now = "import time; now = time.time_ns; time.time_ns = lambda: now() + 10 * 10**9\n"
    found = []
    for name, text in (("plain", TRAINING), ("kept", after)):
        script = tmp_path / f"{name}.py"
        script.write_text(now + text + HITS)
        done = subprocess.run(
            [sys.executable, script, tmp_path, str(workers)], capture_output=True, text=True, timeout=120, check=True
        )
        found.append(done.stdout)
        hits = int(done.stderr.split()[-1])
        assert hits == (93 if name == "kept" and not workers else 0)  # of 96 samples of 3 files
    assert found[0] == found[1]
    assert len(found[0]) > 1000
