"""Scripts whose data set stays as it is, while it reads files and settings of which other parts change."""

import functools
import json
import pathlib
import types

import numpy as np
import torch
from script_list import decode, features, script
from still_changes import train
from torch.utils.data import Dataset

still = functools.partial(script, changes=False)


@still("nothing changes")
def still_config_of_dicts(wrap, rec):
    config = json.loads('{"data": {"width": 32, "mean": [0.1, 0.2]}, "train": {"steps": 0, "lr": 0.1}}')

    class Configured(Dataset):
        def __init__(self, cfg):
            self.cfg, self.x = cfg, features()

        def __len__(self):
            return 256

        def __getitem__(self, i):
            decode()
            return self.x[i, : self.cfg["width"]] - self.cfg["mean"][0]

    def note(step):
        config["train"]["steps"] = step
        config["train"]["lr"] *= 0.99

    train(wrap, rec, Configured(config["data"]), after=note)


@still("nothing changes")
def still_config_object_with_other_fields_that_change(wrap, rec):
    args = types.SimpleNamespace(width=32, step=0, lr=0.1)

    class Configured(Dataset):
        def __init__(self, args):
            self.args, self.x = args, features()

        def __len__(self):
            return 256

        def __getitem__(self, i):
            decode()
            return self.x[i, : self.args.width]

    train(wrap, rec, Configured(args), after=lambda step: setattr(args, "step", step))


@still("nothing changes")
def still_numbers_in_text_files(wrap, rec):
    folder = pathlib.Path("data")
    folder.mkdir()
    for i in range(64):
        (folder / f"{i:03}.txt").write_text(" ".join(str(i * j) for j in range(50)))

    class Files(Dataset):
        def __init__(self, root):
            self.paths = sorted(root.glob("*.txt"))

        def __len__(self):
            return len(self.paths)

        def __getitem__(self, i):
            return torch.tensor([float(n) for n in self.paths[i].read_text().split()]), self.paths[i].stem

    train(wrap, rec, Files(folder), batch_size=8)


@still("nothing changes")
def still_memory_map(wrap, rec):
    np.save("x.npy", features(512).numpy())

    class Mapped(Dataset):
        def __init__(self, path):
            self.x = np.load(path, mmap_mode="r")

        def __len__(self):
            return len(self.x)

        def __getitem__(self, i):
            decode()
            return np.array(self.x[i])

    train(wrap, rec, Mapped("x.npy"), batch_size=32)
