"""A diagnosis leaves the working folder, its checkpoints and its trackers' folders as they were."""

import os
import sqlite3

import pytest

from tests.e2e.support import picture, training

EVERYTHING = '''
import csv, json, pickle, shutil, sqlite3
from pathlib import Path
import numpy as np


class EventWriter:
    """As TensorBoard's: a new folder, an event file that is appended to."""

    def __init__(self, folder):
        os.makedirs(folder, exist_ok=True)
        self.file = open(os.path.join(folder, f"events.out.tfevents.{os.getpid()}"), "ab")

    def add_scalar(self, value):
        self.file.write(float(value).hex().encode())
        self.file.flush()


def save_everything(number):
    weights = {"weight": torch.full((4,), float(number))}
    torch.save(weights, "checkpoint.pt")
    assert torch.load("checkpoint.pt")["weight"][0] == number

    torch.save(weights, "best.pt.tmp")
    os.replace("best.pt.tmp", "best.pt")
    assert torch.load("best.pt")["weight"][0] == number

    with open("log.txt", "a") as file:
        file.write(f"step {number}\\n")
    assert Path("log.txt").read_text().startswith("mine\\n")
    assert Path("log.txt").read_text().endswith(f"step {number}\\n")

    with open("metrics.csv", "w", newline="") as file:
        csv.writer(file).writerow([number])
    assert Path("metrics.csv").read_text().strip() == str(number)

    with open("state.pkl", "wb") as file:
        pickle.dump(number, file)
    with open("state.pkl", "rb") as file:
        assert pickle.load(file) == number
    Path("config.json").write_text(json.dumps({"number": number}))
    assert json.loads(Path("config.json").read_text()) == {"number": number}
    np.save("array.npy", np.full(3, number))
    np.savez("arrays.npz", a=np.full(3, number))
    assert np.load("array.npy")[0] == np.load("arrays.npz")["a"][0] == number
    np.full(3, number).tofile("raw.bin")
    memory = np.lib.format.open_memmap("memory.npy", mode="r+")
    memory[0] = number
    memory.flush()

    database = sqlite3.connect("runs.db")
    database.execute("insert into runs values (?)", (number,))
    database.commit()
    assert (number,) in database.execute("select * from runs").fetchall()
    database.close()

    os.makedirs("runs/exp1/checkpoints", exist_ok=True)
    torch.save(weights, f"runs/exp1/checkpoints/{number}.pt")
    assert torch.load(f"runs/exp1/checkpoints/{number}.pt")["weight"][0] == number
    events.add_scalar(number)


def begin():
    global events
    assert Path("checkpoint.pt").read_text() == "mine"
    os.remove("old.pt")
    assert not os.path.exists("old.pt")
    shutil.rmtree("output")
    os.makedirs("output/samples")
    Path("output/samples/one.txt").write_text("new")
    assert sorted(os.listdir("output")) == ["samples"]
    os.rename("previous", "previous.bak")
    assert Path("previous.bak/model.pt").read_text() == "mine"
    os.mkdir("previous")
    Path("previous/model.pt").write_text("new")
    os.chmod("log.txt", 0o600)
    events = EventWriter("tensorboard/exp1")
    os.chdir("elsewhere")
    Path("here.txt").write_text("new")
    with open("../relative.txt", "a") as file:
        file.write("new")
    os.chdir("..")


if __name__ == "__main__":
    begin()
'''

WORKER = """
class Data(Data):
    def __getitem__(self, index):
        with open("worker.log", "a") as file:
            file.write(f"{index}\\n")
        with open(f"cache-{index}.txt", "w") as file:
            file.write("cached")
        return super().__getitem__(index)
"""


NAMES = ["checkpoint.pt", "best.pt", "metrics.csv", "state.pkl", "config.json", "old.pt", "raw.bin", "worker.log"]
NAMES += ["rank.pt", "relative.txt", "output/result.txt", "output/deep/er.txt", "previous/model.pt"]
NAMES += ["elsewhere/here.txt", "tensorboard/exp0/events.1", "wandb/run-1/files/output.log", "mlruns/0/meta.yaml"]


@pytest.fixture
def project(world, flatout):
    """A folder in which somebody has worked for a while."""
    for name in NAMES:
        flatout.write("mine", name)
    flatout.write("mine\n", "log.txt").chmod(0o640)
    np = pytest.importorskip("numpy")
    np.save(flatout.folder / "array.npy", np.zeros(3))
    np.savez(flatout.folder / "arrays.npz", a=np.zeros(3))
    np.save(flatout.folder / "memory.npy", np.zeros(3))
    with sqlite3.connect(flatout.folder / "runs.db") as database:
        database.execute("create table runs (number)")
    database.close()
    (flatout.folder / "latest.pt").symlink_to("checkpoint.pt")
    (flatout.folder / "empty").mkdir(mode=0o750)
    for folder, _, files in os.walk(flatout.folder):
        for name in files:
            if not os.path.islink(os.path.join(folder, name)):
                os.utime(os.path.join(folder, name), ns=(10**18 + 1, 10**18 + 123_456_789))
    return flatout


@pytest.mark.few(1)
def test_whatever_a_script_does_to_files_it_sees_it_and_the_folder_stays(project):
    project.write(training(before=EVERYTHING, each_step="save_everything(done)"))
    before = picture(project.folder)
    ended = project.diagnose("train.py")
    assert ended.code == 0, ended.err
    assert len(ended.run.steps) >= 20, "the script's own checks held"
    assert len(list((ended.recording / "parts").glob("deep-rank*"))) == 1
    assert picture(project.folder) == before
    written = ended.recording / "files" / "written"
    assert (written / "runs" / "exp1" / "checkpoints" / "1.pt").exists()


@pytest.mark.parametrize("victim", ["script", "flatout"])
@pytest.mark.full
def test_the_folder_stays_when_something_is_killed_in_the_middle(project, victim, world):
    project.write(training(before=EVERYTHING, each_step="save_everything(done)"))
    before = picture(project.folder)
    process = project.start("diagnose", "train.py")
    project.wait_for_steps()
    assert (picture(project.folder) == before) == (world == "private"), "in a private copy it never changes"
    (project.script() if victim == "script" else process).kill()
    process.wait()
    assert project.left_behind() == []
    assert picture(project.folder) == before


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.full
def test_what_workers_write_is_undone_too(project, method):
    method_line = f"torch.multiprocessing.set_start_method('{method}', force=True)"
    project.write(training(before=f"{method_line}\n{WORKER}", workers=2))
    before = picture(project.folder)
    ended = project.diagnose("train.py", steps=6)
    assert ended.code == 0, ended.err
    assert picture(project.folder) == before
    assert (ended.recording / "files" / "written" / "cache-1.txt").read_text() == "cached"


RANKS = """
import torch.distributed as dist
if __name__ == '__main__':
    dist.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
"""


@pytest.mark.full
def test_every_rank_of_torchrun_is_measured_and_its_files_are_undone(project):
    save = """
if dist.get_rank() == 1:
    torch.save(model.state_dict(), "rank.pt")
    open("rank-1.txt", "a").write("new")
open("log.txt", "a").write(f"rank {dist.get_rank()}")
"""
    project.write(training(before=RANKS, each_step=save))
    before = picture(project.folder)
    ended = project.diagnose("--", "torchrun", "--standalone", "--nproc-per-node", "2", "train.py")
    assert ended.code == 0, ended.err
    assert picture(project.folder) == before
    run = ended.run
    assert [rank.rank for rank in run.ranks] == [0, 1]
    assert run.header.world_size == 2
    assert all(rank.num_steps >= 20 for rank in run.ranks)
    assert run.header.script == "train.py"
