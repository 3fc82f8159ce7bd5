"""kept-directories in a training whose data set opens an archive for each sample: the same losses, fewer reads."""

import io
import tarfile
import zipfile

import numpy as np
import pytest
import torch
from tests.unit.fixes.training import same_bits, under
from torch.utils.data import DataLoader, Dataset

from flatout.fixes.kept_directories import FIX, choices
from flatout.kept import known_files
from flatout.rules.core.example import example, line
from flatout.schema.phase import Phase

ROWS = np.random.default_rng(0).standard_normal((12, 3)).astype(np.float32)


class Archived(Dataset):
    def __init__(self, name):
        self.name = name

    def __len__(self):
        return len(ROWS)

    def __getitem__(self, index):
        if self.name.endswith(".npz"):
            with np.load(self.name) as archive:
                return torch.from_numpy(archive[f"row{index}"])
        if self.name.endswith(".zip"):
            with zipfile.ZipFile(self.name) as archive:
                return torch.frombuffer(bytearray(archive.read(f"row{index}")), dtype=torch.float32)
        with tarfile.open(self.name) as archive:
            return torch.frombuffer(bytearray(archive.extractfile(f"row{index}").read()), dtype=torch.float32)


def train(name, workers):
    torch.manual_seed(0)
    weight = torch.randn(3, requires_grad=True)
    optimizer, losses = torch.optim.SGD([weight], lr=0.1), []
    for _ in range(2):
        for rows in DataLoader(Archived(name), batch_size=4, shuffle=True, num_workers=workers):
            loss = (rows @ weight).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses, weight.detach()


@pytest.fixture
def archives(workdir, monkeypatch):
    monkeypatch.setattr(known_files, "_RESTED_NS", -1)
    monkeypatch.setattr(known_files, "_kind_of", lambda device: "ext4")
    np.savez("rows.npz", **{f"row{at}": row for at, row in enumerate(ROWS)})
    with zipfile.ZipFile("rows.zip", "w") as zipped, tarfile.open("rows.tar", "w") as tarred:
        for at, row in enumerate(ROWS):
            zipped.writestr(f"row{at}", row.tobytes())
            info = tarfile.TarInfo(f"row{at}")
            info.size = row.nbytes
            tarred.addfile(info, io.BytesIO(row.tobytes()))


@pytest.mark.parametrize("name", ["rows.npz", "rows.zip", "rows.tar"])
@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_training_is_the_same_to_the_last_bit(archives, name, workers):
    functions = zipfile.ZipFile.getinfo, zipfile.ZipFile._RealGetContents, tarfile.TarFile._load
    plain = train(name, workers)
    with under("kept-directories") as process:
        ours = train(name, workers)
        assert sum(process.site.hits.values()) >= 16  # of 24 samples; workers begin anew in each pass
        assert not process.site.failure and not process.site.stood_back
    assert functions == (zipfile.ZipFile.getinfo, zipfile.ZipFile._RealGetContents, tarfile.TarFile._load)
    assert same_bits(ours, plain)


def test_switched_off_it_lets_everything_through(archives):
    with under("kept-directories", on=False) as process:
        train("rows.zip", 0)
        assert not process.site.hits


def test_a_class_that_somebody_has_changed_is_left_alone(archives, monkeypatch):
    monkeypatch.setattr(zipfile.ZipFile, "__getattr__", lambda archive, name: 3, raising=False)
    monkeypatch.delattr(tarfile.TarFile, "__getattr__", raising=False)
    with under("kept-directories") as process:
        train("rows.zip", 0)
        assert process.site.hits == {}
        assert process.site.stood_back == "ZipFile is not Python's own any more"
        train("rows.tar", 0)
        assert process.site.hits["tar directory"] == 22


def recorded(leaf, function):
    seen = line(1.0, ("train.py", 1, "f"), phase=Phase.INPUT, stage="sample", leaf=leaf, leaf_function=function)
    return example(step_ms=10, input=5, lines=[seen]).run


def test_it_is_offered_where_directories_cost_time():
    assert choices(recorded("zipfile", "_RealGetContents")) == ({},)
    assert choices(recorded("tarfile", "frombuf")) == ({},)
    assert "no time is spent on directories" in FIX.unfit(recorded("zipfile", "_read1"))
    assert "no time is spent on directories" in FIX.unfit(recorded("PIL", "open"))
