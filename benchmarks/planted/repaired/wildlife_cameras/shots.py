import json
import tempfile
from pathlib import Path

import numpy as np
import torch

SPECIES = ("deer", "boar", "fox", "badger", "none")


def write_archive(n=1024, side=32):
    """What the cameras sent: one picture file each and one file of annotations."""
    rng = np.random.default_rng(12)
    folder = Path(tempfile.mkdtemp())
    notes = []
    for k in range(n):
        label = int(rng.integers(0, len(SPECIES)))
        picture = rng.normal(110 + 10 * label, 40, (side, side, 3)).clip(0, 255).astype(np.uint8)
        np.save(folder / f"{k:05d}.npy", picture)
        notes.append({"file": f"{k:05d}.npy", "species": SPECIES[label], "hour": int(rng.integers(0, 24))})
    (folder / "notes.json").write_text(json.dumps(notes))
    return folder


def read_archive(folder):
    pictures, labels = [], []
    for note in json.loads((folder / "notes.json").read_text()):
        picture = np.load(folder / note["file"]).astype(np.float32)
        pictures.append((picture - picture.mean()) / picture.std())
        labels.append(SPECIES.index(note["species"]))
    return torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2).contiguous(), torch.tensor(labels)
