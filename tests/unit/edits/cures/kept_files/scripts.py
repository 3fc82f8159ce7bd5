"""Data sets that read one of few files for each sample, and files for them."""

import json
import random
import wave
from collections.abc import Iterator
from pathlib import Path

import numpy
from PIL import Image

HEAD = """\
import bz2, csv, gzip, json, os, random, re, struct, wave
from pathlib import Path
import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch.utils.data import Dataset

CONTEXT = 8
CHARS = sorted("abcdefghijklmnopqrstuvwxyz .\\n")
stoi = {c: i for i, c in enumerate(CHARS)}
"""

CLASS = """\

class Data(Dataset):
    def __init__(self, paths, suffix=".txt"):
        self.paths = [path for path in paths if str(path).endswith(suffix)]
        self.window = 6
        self.key = "b"
        self.sep = ","

    def __len__(self):
        return 64

    def __getitem__(self, index):
        path = self.paths[index % len(self.paths)]
"""


def script(body: str, *, head: str = "", suffix: str = "") -> str:
    """Return a script whose data set has these lines in `__getitem__`, behind the path."""
    lines = "".join(f"        {line}\n" if line else "\n" for line in body.strip("\n").split("\n"))
    made = CLASS.replace('suffix=".txt"', f'suffix="{suffix}"') if suffix else CLASS
    return HEAD + head + made + lines


def files(folder: Path) -> list[Path]:
    """Write files of several kinds, three of each."""
    return [path for number in range(3) for path in _written(folder, number)]


def _written(folder: Path, number: int) -> Iterator[Path]:
    rng = random.Random(number)
    text = "".join(rng.choice("abcdefghij .\n") for _ in range(400 + number))
    rows = [[rng.randint(0, 99) for _ in range(4)] for _ in range(40)]
    array = numpy.random.default_rng(number).normal(size=(50, 4)).astype(numpy.float32)
    texts = {
        ".txt": text,
        ".csv": "".join(",".join(map(str, row)) + "\n" for row in rows),
        ".json": json.dumps({"rows": rows, "text": text}),
        ".jsonl": "".join(f'{{"a": {row[0]}, "b": "{row[1]}"}}\n' for row in rows),
    }
    for suffix, content in texts.items():
        (folder / f"f{number}{suffix}").write_text(content)
    numpy.save(folder / f"f{number}.npy", array)
    numpy.savez(folder / f"f{number}.npz", a=array, b=array[::-1] * 2)
    Image.fromarray((array[:, :, None] * 60 % 255).astype("uint8").repeat(3, 2)).save(folder / f"f{number}.png")
    (folder / f"f{number}.bin").write_bytes(array.astype("<f4").tobytes())
    with wave.open(str(folder / f"f{number}.wav"), "wb") as made:
        made.setnchannels(1)
        made.setsampwidth(2)
        made.setframerate(8000)
        made.writeframes((array[:, 0] * 9000).astype("<i2").tobytes())
    for suffix in (*texts, ".npy", ".npz", ".png", ".bin", ".wav"):
        yield folder / f"f{number}{suffix}"
