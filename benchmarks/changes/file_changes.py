"""Files that samples read, and that the training or the data set itself writes."""

import csv
import json
import pathlib
import shelve

import numpy as np
import torch
from script_list import decode, features, script
from torch.utils.data import DataLoader, Dataset


@script("files", attributes=["labels.csv"])
def file_csv_written_by_the_training(wrap, rec):
    path = pathlib.Path("labels.csv")

    def write(labels):
        with path.open("w", newline="") as file:
            csv.writer(file).writerows(enumerate(labels))

    class FromCsv(Dataset):
        def __len__(self):
            return 64

        def __getitem__(self, i):
            with path.open() as file:
                row = list(csv.reader(file))[i]
            return torch.tensor([float(value) for value in row])

    write([i % 3 for i in range(64)])
    loader = wrap(DataLoader(FromCsv(), batch_size=8, shuffle=True))
    for epoch in range(5):
        for batch in loader:
            rec(batch)
        if epoch >= 2:
            write([(i + epoch) % 3 for i in range(64)])


@script("files", attributes=["settings.json"])
def file_of_settings_edited_in_mid_pass(wrap, rec):
    path = pathlib.Path("settings.json")
    path.write_text(json.dumps({"gain": 1.0}))

    class Gained(Dataset):
        def __init__(self):
            self.x = features(128)

        def __len__(self):
            return 128

        def __getitem__(self, i):
            return self.x[i] * json.loads(path.read_text())["gain"]

    loader = wrap(DataLoader(Gained(), batch_size=16, shuffle=True))
    for epoch in range(5):
        for number, batch in enumerate(loader):
            rec(batch)
            if (epoch, number) == (3, 4):
                path.write_text(json.dumps({"gain": 3.0}))


@script("files", attributes=["embeddings"])
def file_mapped_and_written_by_another_map(wrap, rec):
    np.save("embeddings.npy", np.zeros((256, 16), dtype=np.float32))

    class Mapped(Dataset):
        def __init__(self):
            self.embeddings = np.load("embeddings.npy", mmap_mode="r")

        def __len__(self):
            return 256

        def __getitem__(self, i):
            decode()
            return torch.tensor(self.embeddings[i])

    loader = wrap(DataLoader(Mapped(), batch_size=16, shuffle=True))
    for epoch in range(5):
        for batch in loader:
            rec(batch)
        out = np.load("embeddings.npy", mmap_mode="r+")
        out[epoch::50] = epoch + 1
        out.flush()
        del out


@script("files", attributes=["checkpoints"])
def file_of_samples_rewritten_one_by_one(wrap, rec):
    for i in range(48):
        torch.save(torch.full((8,), float(i)), f"{i}.pt")

    class Saved(Dataset):
        def __len__(self):
            return 48

        def __getitem__(self, i):
            return torch.load(f"{i}.pt")

    loader = wrap(DataLoader(Saved(), batch_size=8, shuffle=True))
    for epoch in range(5):
        for batch in loader:
            rec(batch)
        if epoch in (1, 3):
            torch.save(torch.full((8,), 100.0 + epoch), "17.pt")


@script("files", attributes=["store"])
def file_database_written_between(wrap, rec):
    class Shelf(Dataset):
        def __init__(self):
            self.store = shelve.open("samples")  # noqa: SIM115, open as long as it is
            self.store.update({str(i): {"y": i % 5} for i in range(40)})

        def __len__(self):
            return 40

        def __getitem__(self, i):
            return torch.tensor(self.store[str(i)]["y"])

    data = Shelf()
    loader = wrap(DataLoader(data, batch_size=8, shuffle=True))
    for epoch in range(5):
        for batch in loader:
            rec(batch)
        data.store["7"] = {"y": 50 + epoch}
    data.store.close()


@script("files")
def file_log_line_for_each_sample(wrap, rec):
    class Logged(Dataset):
        def __init__(self):
            self.x, self.log = features(), pathlib.Path("access.log")

        def __len__(self):
            return 256

        def __getitem__(self, i):
            decode()
            with self.log.open("a") as log:
                log.write(f"{i}\n")
            return self.x[i], i

    loader = wrap(DataLoader(Logged(), batch_size=16, shuffle=True))
    for _ in range(3):
        for batch in loader:
            rec(batch)
        rec(pathlib.Path("access.log").read_text())


@script("files")
def file_cache_made_by_the_data_set(wrap, rec):
    class OnDisk(Dataset):
        def __init__(self):
            self.x, self.folder = features(64), pathlib.Path("cache")
            self.folder.mkdir()

        def __len__(self):
            return 64

        def __getitem__(self, i):
            path = self.folder / f"{i}.npy"
            if not path.exists():
                np.save(path, self.x[i].numpy() * 2)
            return np.load(path)

    loader = wrap(DataLoader(OnDisk(), batch_size=16, shuffle=True))
    rec(sorted(path.name for path in pathlib.Path("cache").iterdir()))
    for number, batch in enumerate(loader):
        rec(batch)
        rec(len(list(pathlib.Path("cache").iterdir())))
        if number == 1:
            break
    for batch in loader:
        rec(batch)
