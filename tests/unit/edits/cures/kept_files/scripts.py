"""Data sets that read one of few files for each sample, and files for them."""

import random
import wave
from pathlib import Path

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
    import numpy
    from PIL import Image

    made = []
    for number in range(3):
        rng = random.Random(number)
        text = "".join(rng.choice("abcdefghij .\n") for _ in range(400 + number))
        rows = [[rng.randint(0, 99) for _ in range(4)] for _ in range(40)]
        array = numpy.random.default_rng(number).normal(size=(50, 4)).astype(numpy.float32)
        for suffix in (".txt", ".csv", ".json", ".jsonl", ".npy", ".npz", ".png", ".wav", ".bin"):
            path = folder / f"f{number}{suffix}"
            made.append(path)
            if suffix == ".txt":
                path.write_text(text)
            elif suffix == ".csv":
                path.write_text("".join(",".join(map(str, row)) + "\n" for row in rows))
            elif suffix == ".json":
                path.write_text(__import__("json").dumps({"rows": rows, "text": text}))
            elif suffix == ".jsonl":
                path.write_text("".join(f'{{"a": {row[0]}, "b": "{row[1]}"}}\n' for row in rows))
            elif suffix == ".npy":
                numpy.save(path, array)
            elif suffix == ".npz":
                numpy.savez(path, a=array, b=array[::-1] * 2)
            elif suffix == ".png":
                Image.fromarray((array[:, :, None] * 60 % 255).astype("uint8").repeat(3, 2)).save(path)
            elif suffix == ".bin":
                path.write_bytes(array.astype("<f4").tobytes())
            else:
                with wave.open(str(path), "wb") as made_wave:
                    made_wave.setnchannels(1)
                    made_wave.setsampwidth(2)
                    made_wave.setframerate(8000)
                    made_wave.writeframes((array[:, 0] * 9000).astype("<i2").tobytes())
    return made
